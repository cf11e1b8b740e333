// Dropout with hashed masks, as `rss_rl.models.dropout` specifies it, in one pass over the values.
//
// Legend: R rows, D features of each.

#include "rows.h"

namespace {

using namespace rss;

constexpr int kLanes = 4;  // 16-bit uniform numbers in a hash
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
constexpr std::int64_t kHashes = kBytes / sizeof(std::uint64_t);  // per vector
typedef std::uint64_t Hashes __attribute__((vector_size(kBytes)));

// The output function of SplitMix64 (Steele, Lea, Flood 2014).
inline Hashes mix(Hashes state) {
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBull;
  return state ^ (state >> 31);
}

constexpr std::int64_t kFeatures = kHashes * kLanes;  // elements that a vector of hashes decides on
typedef std::int16_t Shorts __attribute__((vector_size(kBytes)));

// A vector of `factor` where a lane keeps its element, 0 elsewhere, for the lanes from `first` on.
template <typename T>
inline typename Lanes<T>::Vector factors(Shorts kept, int first, T factor) {
  // A comparison sets all bits of a lane or none, and so does its widened form.
  using Bits = decltype(typename Lanes<T>::Vector{} == typename Lanes<T>::Vector{});
  typedef std::int16_t Some __attribute__((vector_size(Lanes<T>::kCount * sizeof(std::int16_t))));
  Some some;
  std::memcpy(&some, reinterpret_cast<const std::int16_t*>(&kept) + first, sizeof some);
  const typename Lanes<T>::Vector all = typename Lanes<T>::Vector{} + factor;
  return (typename Lanes<T>::Vector)(__builtin_convertvector(some, Bits) & (Bits)all);
}

template <typename T, typename From, typename To>
int drop(const std::uint64_t* keys, const From* values, To* out, std::int64_t rows,
         std::int64_t features, std::int64_t lowest, double scale, std::int64_t threads) {
  constexpr int kCount = Lanes<T>::kCount;
  const std::int16_t kept_from = static_cast<std::int16_t>(lowest);
  Hashes steps;
  for (std::int64_t i = 0; i < kHashes; ++i) steps[i] = (i + 1) * kGolden;
  return each_row(rows, threads, [&](std::int64_t row, std::int64_t) {
    Hashes state = steps + keys[row];
    for (std::int64_t start = 0; start < features; start += kFeatures) {
      const Shorts kept = (Shorts)mix(state) >= kept_from;
      for (int first = 0; first < kFeatures && start + first < features; first += kCount) {
        const std::int64_t at = row * features + start + first;
        const std::int64_t left = features - start - first;
        const typename Lanes<T>::Vector factor = factors(kept, first, static_cast<T>(scale));
        store_some(out + at, left, load_some(values + at, left) * factor);
      }
      state += kHashes * kGolden;
    }
  });
}

}  // namespace

// Values and results [R, D], contiguous; keys [R]. A lane of at least `lowest` keeps its element. Inputs
// and results of products may be bfloat16.
extern "C" {

#define RSS_EXPORT(KIND, T, V, O)                                                             \
  int rss_dropout_##KIND(const std::uint64_t* keys, const V* values, O* out,                  \
                         std::int64_t rows, std::int64_t features, std::int64_t lowest,       \
                         double scale, std::int64_t threads) {                                \
    return drop<T>(keys, values, out, rows, features, lowest, scale, threads);                \
  }
RSS_EXPORT(float, float, float, float)
RSS_EXPORT(double, double, double, double)
RSS_EXPORT(to_bfloat16_float, float, float, BFloat16)
RSS_EXPORT(of_bfloat16_float, float, BFloat16, float)
#undef RSS_EXPORT
}
