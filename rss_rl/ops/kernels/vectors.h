// Vectors of one cache line, blocks of features, and pieces of work that threads take in turn.
//
// The bits of a result depend only on its own row, not on the batch or the threads.

#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace rss {

enum Outcome { kDone = 0, kOutOfRange = 1, kOutOfMemory = 2 };

constexpr int kBytes = 64;  // of a vector, whatever the register width: a cache line
constexpr double kLog2 = 0.69314718055994530942;

template <typename T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(kBytes)));
  static constexpr int kCount = kBytes / sizeof(T);
};

typedef Lanes<float>::Vector Floats;
typedef Lanes<double>::Vector Doubles;
typedef std::uint32_t Words __attribute__((vector_size(kBytes)));

// 1 / x of x in [1, e^80].
inline Floats reciprocal(Floats x) {
#ifdef __AVX512F__
  // A 14-bit estimate and a Newton step take half the time of a division.
  const Floats estimate = (Floats)_mm512_rcp14_ps((__m512)x);
  return estimate + estimate * (1.0f - x * estimate);
#else
  return 1.0f / x;
#endif
}

inline Doubles reciprocal(Doubles x) { return 1.0 / x; }

// 2^rest of rest in [-0.5, 0.5] within 8e-8 relative (least squares on Chebyshev points, weighted by
// 2^-rest), times 2^whole, with `whole` in the low bits of `shifted`. For normal results.
inline Floats assembled(Floats rest, Floats shifted) {
  Floats power = rest * 0.0013267f + 0.00967546f;
  power = power * rest + 0.05550743f;
  power = power * rest + 0.24022122f;
  power = power * rest + 0.69314695f;
  power = power * rest + 1.00000007f;
  return (Floats)((Words)power + ((Words)shifted << 23));
}

constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer

inline Floats power_of_two(Floats x) {
  const Floats shifted = x + kShift;
  return assembled(x - (shifted - kShift), shifted);
}

inline Doubles power_of_two(Doubles x) {
  Doubles power;
  for (int lane = 0; lane < Lanes<double>::kCount; ++lane) power[lane] = std::exp2(x[lane]);
  return power;
}

// e^(2 x / scale), to the precision of its type for any x.
inline Floats exponential(Floats x, double scale) {
  const double factor = 2.0 / (scale * kLog2);
  const float high = static_cast<float>(factor);
  const float low = static_cast<float>(factor - high);
  const Floats shifted = x * high + kShift;
  return assembled((x * high - (shifted - kShift)) + x * low, shifted);
}

inline Doubles exponential(Doubles x, double scale) {
  return power_of_two(x * (2.0 / (scale * kLog2)));
}

// The first `count` elements of a vector, which holds more; the others are 0.
template <typename Vector, typename T>
inline Vector load_part(const T* from, std::int64_t count) {
#ifdef __AVX512BW__  // a call to memcpy takes as long as ten vectors
  const std::uint64_t bytes = (std::uint64_t(1) << (count * sizeof(T))) - 1;
  const __m512i part = _mm512_maskz_loadu_epi8(bytes, from);
  Vector vector;
  std::memcpy(&vector, &part, sizeof vector);
#else
  Vector vector = {};
  std::memcpy(&vector, from, count * sizeof(T));
#endif
  return vector;
}

template <typename Vector, typename T>
inline void store_part(T* to, std::int64_t count, Vector vector) {
#ifdef __AVX512BW__
  const std::uint64_t bytes = (std::uint64_t(1) << (count * sizeof(T))) - 1;
  __m512i part = {};
  std::memcpy(&part, &vector, sizeof vector);
  _mm512_mask_storeu_epi8(to, bytes, part);
#else
  std::memcpy(to, &vector, count * sizeof(T));
#endif
}

// A vector of `count` elements, or as many as it holds; padded with zeros.
template <typename Vector, typename T>
inline Vector load_vector(const T* from, std::int64_t count) {
  if (count < static_cast<std::int64_t>(sizeof(Vector) / sizeof(T))) {
    return load_part<Vector>(from, count);
  }
  Vector whole;
  std::memcpy(&whole, from, sizeof whole);  // a constant size makes it one instruction
  return whole;
}

template <typename Vector, typename T>
inline void store_vector(T* to, std::int64_t count, Vector vector) {
  if (count < static_cast<std::int64_t>(sizeof(Vector) / sizeof(T))) {
    store_part(to, count, vector);
  } else {
    std::memcpy(to, &vector, sizeof vector);
  }
}

// bfloat16: the upper 16 bits of a float.
struct BFloat16 {
  std::uint16_t bits;
};

typedef std::uint16_t BFloat16s __attribute__((vector_size(kBytes / 2)));

template <>
struct Lanes<BFloat16> {
  typedef BFloat16s Vector;
  static constexpr int kCount = Lanes<float>::kCount;
};

// The same by the type of the numbers; those stored as BFloat16 are floats in a vector.
template <typename T>
inline typename Lanes<T>::Vector load_some(const T* from, std::int64_t count) {
  return load_vector<typename Lanes<T>::Vector>(from, count);
}

inline Floats load_some(const BFloat16* from, std::int64_t count) {
  return (Floats)(__builtin_convertvector(load_vector<BFloat16s>(from, count), Words) << 16);
}

template <typename T>
inline void store_some(T* to, std::int64_t count, typename Lanes<T>::Vector vector) {
  store_vector(to, count, vector);
}

// Rounds to nearest even; NaN stays NaN.
inline void store_some(BFloat16* to, std::int64_t count, Floats vector) {
  const Words bits = (Words)vector;
  const Words rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const BFloat16s kept =
      __builtin_convertvector(vector == vector ? rounded : Words{} + 0x7FC0, BFloat16s);
  store_vector(to, count, kept);
}

// Rows, `stride` elements apart, of T or, if T is float and `bfloat16` is set, of BFloat16.
template <typename Pointer>
struct Either {
  Pointer first;
  std::int64_t stride;
  bool bfloat16;
};

using Given = Either<const void*>;
using Made = Either<void*>;

// Some features of every token: `count` from `first` on, in rows of `features`.
template <typename T>
class Block {
 public:
  using Vector = typename Lanes<T>::Vector;

  Vector load(const Given& tokens, std::int64_t row, int part) const {
    const std::int64_t start = part * Lanes<T>::kCount, at = row * tokens.stride + first_ + start;
    if constexpr (std::is_same_v<T, float>) {
      if (tokens.bfloat16) {
        return load_some(static_cast<const BFloat16*>(tokens.first) + at, count_ - start);
      }
    }
    return load_some(static_cast<const T*>(tokens.first) + at, count_ - start);
  }

  void store(const Made& tokens, std::int64_t row, int part, Vector vector) const {
    const std::int64_t start = part * Lanes<T>::kCount, at = row * tokens.stride + first_ + start;
    if constexpr (std::is_same_v<T, float>) {
      if (tokens.bfloat16) {
        return store_some(static_cast<BFloat16*>(tokens.first) + at, count_ - start, vector);
      }
    }
    store_some(static_cast<T*>(tokens.first) + at, count_ - start, vector);
  }

  Block(std::int64_t first, std::int64_t features, std::int64_t widest)
      : first_(first), count_(std::min(features - first, widest)), features_(features) {}

  Vector load(const T* tokens, std::int64_t row, int part) const {
    const std::int64_t start = part * Lanes<T>::kCount;
    return load_some(tokens + row * features_ + first_ + start, count_ - start);
  }

  void store(T* tokens, std::int64_t row, int part, Vector vector) const {
    const std::int64_t start = part * Lanes<T>::kCount;
    store_some(tokens + row * features_ + first_ + start, count_ - start, vector);
  }

 private:
  std::int64_t first_, count_, features_;
};

template <typename T>
class Range {
 public:
  using Vector = typename Lanes<T>::Vector;

  explicit Range(double largest) : largest_(static_cast<T>(largest)) {}

  Vector check(Vector scores) {
    inside_ &= (scores <= largest_) & (scores >= -largest_);
    return scores;
  }

  bool holds() const {
    bool all = true;
    for (int lane = 0; lane < Lanes<T>::kCount; ++lane) all &= inside_[lane] != 0;
    return all;
  }

 private:
  T largest_;
  decltype(Vector{} == Vector{}) inside_ = Vector{} == Vector{};
};

// Runs a function in several of torch's threads, if they are OpenMP's. Others would have to be started
// while torch's idle ones still occupy their processors.
using Team = void (*)(void (*call)(void*), void* given, unsigned threads, unsigned flags);

inline Team team() {
  static const Team found = reinterpret_cast<Team>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return found;
}

// Calls take(), which takes the next of `count` pieces of work, in `threads` threads, including this one.
template <typename Take>
void together(std::int64_t count, std::int64_t threads, const Take& take) {
  if (std::min(count, threads) < 2) return take();
  if (team() != nullptr) {
    const auto call = [](void* given) { (*static_cast<const Take*>(given))(); };
    // Always as many as torch uses: with fewer, OpenMP would end the others.
    return team()(call, const_cast<Take*>(&take), static_cast<unsigned>(threads), 0);
  }
  std::vector<std::thread> others;
  for (std::int64_t i = 1; i < std::min(count, threads); ++i) {
    try {
      others.emplace_back(take);
    } catch (const std::system_error&) {
      break;  // no more threads available: those that run do the work
    }
  }
  take();
  for (std::thread& other : others) other.join();
}

// Runs work(number, memory) for the numbers below `count`; each thread has a copy of `fresh`, whose
// `in_range` says whether its input can be computed.
template <typename Memory, typename Work>
Outcome run(std::int64_t count, std::int64_t threads, const Memory& fresh, const Work& work) {
  std::atomic<std::int64_t> next{0};
  std::atomic<Outcome> outcome{kDone};
  const auto take = [&] {
    try {
      Memory memory = fresh;
      for (std::int64_t i; memory.in_range && (i = next.fetch_add(1)) < count;) work(i, memory);
      if (!memory.in_range) outcome = kOutOfRange;
    } catch (const std::bad_alloc&) {
      outcome = kOutOfMemory;
    }
  };
  together(count, threads, take);
  return outcome;
}

// For work without per-thread state.
struct NoMemory {
  bool in_range = true;
};

// Vectors of a block: as many as fit in the registers beside the sums. Doubles are for checks, and each
// width costs compile time.
template <typename T>
#ifdef __AVX512F__
constexpr int kWidest = std::is_same_v<T, float> ? 4 : 1;
#else
constexpr int kWidest = 1;
#endif

template <typename T>
constexpr std::int64_t kBlock = kWidest<T> * Lanes<T>::kCount;

// Calls work(sequence, block, parts, memory) for every sequence and block of its features, and
// memory.enter(sequence) before a thread's first block of one. `parts` is a constant, the block's
// number of vectors. If there are many sequences, a thread takes all blocks of one: rows are read
// contiguously, and no two threads write to one cache line.
template <typename T, typename Memory, typename Work>
Outcome run_blocks(std::int64_t sequences, std::int64_t features, std::int64_t threads,
                   const Memory& fresh, const Work& work) {
  const std::int64_t blocks = (features + kBlock<T> - 1) / kBlock<T>;
  const std::int64_t grain = sequences >= 8 * threads ? std::max<std::int64_t>(blocks, 1) : 1;
  return run(sequences * blocks / grain, threads, fresh, [&](std::int64_t piece, Memory& memory) {
    for (std::int64_t number = piece * grain; number < (piece + 1) * grain; ++number) {
      const std::int64_t sequence = number / blocks, first = number % blocks * kBlock<T>;
      if (memory.sequence != sequence) memory.enter(sequence);
      memory.sequence = sequence;
      const Block<T> block(first, features, kBlock<T>);
      const std::int64_t left = std::min(features - first, kBlock<T>);
      const std::int64_t parts = (left + Lanes<T>::kCount - 1) / Lanes<T>::kCount;
      if (parts == 1) work(sequence, block, std::integral_constant<int, 1>(), memory);
      if constexpr (kWidest<T> == 4) {
        if (parts == 2) work(sequence, block, std::integral_constant<int, 2>(), memory);
        if (parts == 3) work(sequence, block, std::integral_constant<int, 3>(), memory);
        if (parts == 4) work(sequence, block, std::integral_constant<int, 4>(), memory);
      }
    }
  });
}

}  // namespace rss
