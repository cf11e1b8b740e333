// sum_i P_i x_i with P = softmax over the tokens, for each feature: forward and backward.
//
// With P_i = e^(s_i - max) / sum, out = sum_i P_i x_i, and g the gradient of out, the gradient of x_i is
// P_i g and that of s_i is P_i (x_i - out) g.
//
// Legend: M sequences, T tokens of all of them, sequence after sequence, D features.

#include <limits>

#include "vectors.h"

namespace {

using namespace rss;

template <typename T>
struct Problem {
  const T* scores;             // [T, D]
  const T* values;             // [T, D]
  const std::int64_t* starts;  // [M + 1], row of each sequence's first token, and T
  std::int64_t sequences, features, threads;
};

template <typename T>
struct Memory {
  explicit Memory(const Problem<T>& problem) : given(problem) {}

  void enter(std::int64_t number) {
    first = given.starts[number];
    end = given.starts[number + 1];
  }

  const Problem<T>& given;
  std::int64_t first = 0, end = 0;  // rows of `sequence`
  std::int64_t sequence = -1;
  bool in_range = true;  // all scores are finite
};

inline Floats weigh(Floats difference) {
  // Smaller weights are denormal, and negligible beside the largest, which is 1.
  const Floats exponent = difference * static_cast<float>(1.0 / kLog2);
  return power_of_two(exponent > -126.0f ? exponent : Floats{} - 126.0f);
}

inline Doubles weigh(Doubles difference) { return power_of_two(difference * (1.0 / kLog2)); }

template <typename T, int kParts>
void forward_block(const Problem<T>& given, std::int64_t sequence, const Block<T>& block,
                   Memory<T>& memory, T* pooled, T* largest, T* inverse) {
  using Vector = typename Lanes<T>::Vector;
  Range<T> range(std::numeric_limits<T>::max());
  Vector most[kParts], total[kParts] = {}, sum[kParts] = {};
  for (int part = 0; part < kParts; ++part) {
    most[part] = Vector{} + std::numeric_limits<T>::lowest();
  }
  for (std::int64_t row = memory.first; row < memory.end; ++row) {
    for (int part = 0; part < kParts; ++part) {
      const Vector score = range.check(block.load(given.scores, row, part));
      most[part] = score > most[part] ? score : most[part];
    }
  }
  for (std::int64_t row = memory.first; row < memory.end; ++row) {
    for (int part = 0; part < kParts; ++part) {
      const Vector weight = weigh(block.load(given.scores, row, part) - most[part]);
      total[part] += weight;
      sum[part] += weight * block.load(given.values, row, part);
    }
  }
  for (int part = 0; part < kParts; ++part) {
    const Vector share = total[part] > 0 ? T(1) / total[part] : Vector{};
    block.store(pooled, sequence, part, sum[part] * share);
    block.store(largest, sequence, part, most[part]);
    block.store(inverse, sequence, part, share);
  }
  memory.in_range &= range.holds();
}

template <typename T, int kParts>
void backward_block(const Problem<T>& given, std::int64_t sequence, const Block<T>& block,
                    Memory<T>& memory, const T* pooled, const T* largest, const T* inverse,
                    const T* gradient, T* by_score, T* by_value) {
  using Vector = typename Lanes<T>::Vector;
  Vector mean[kParts], most[kParts], flow[kParts];
  for (int part = 0; part < kParts; ++part) {
    mean[part] = block.load(pooled, sequence, part);
    most[part] = block.load(largest, sequence, part);
    flow[part] = block.load(gradient, sequence, part) * block.load(inverse, sequence, part);
  }
  for (std::int64_t row = memory.first; row < memory.end; ++row) {
    for (int part = 0; part < kParts; ++part) {
      const Vector moved = weigh(block.load(given.scores, row, part) - most[part]) * flow[part];
      block.store(by_value, row, part, moved);
      block.store(by_score, row, part, moved * (block.load(given.values, row, part) - mean[part]));
    }
  }
}

template <typename T>
int forward(const Problem<T>& given, T* pooled, T* largest, T* inverse) {
  const auto work = [&](std::int64_t m, const Block<T>& block, auto parts, Memory<T>& memory) {
    forward_block<T, parts>(given, m, block, memory, pooled, largest, inverse);
  };
  return run_blocks<T>(given.sequences, given.features, given.threads, Memory<T>(given), work);
}

template <typename T>
int backward(const Problem<T>& given, const T* pooled, const T* largest, const T* inverse,
             const T* gradient, T* by_score, T* by_value) {
  const auto work = [&](std::int64_t m, const Block<T>& block, auto parts, Memory<T>& memory) {
    backward_block<T, parts>(given, m, block, memory, pooled, largest, inverse, gradient, by_score,
                             by_value);
  };
  return run_blocks<T>(given.sequences, given.features, given.threads, Memory<T>(given), work);
}

}  // namespace

// All return an Outcome. Tensors are contiguous.
extern "C" {

#define RSS_EXPORT(T)                                                                         \
  int rss_pooling_forward_##T(const Problem<T>* given, T* pooled, T* largest, T* inverse) {   \
    return forward(*given, pooled, largest, inverse);                                         \
  }                                                                                           \
  int rss_pooling_backward_##T(const Problem<T>* given, const T* pooled, const T* largest,    \
                               const T* inverse, const T* gradient, T* by_score,              \
                               T* by_value) {                                                 \
    return backward(*given, pooled, largest, inverse, gradient, by_score, by_value);          \
  }
RSS_EXPORT(float)
RSS_EXPORT(double)
#undef RSS_EXPORT
}
