// The fusion gate, forward and backward: out = F h + (1 - F) s, F = sigmoid(a + c + b).
//
// Legend: R rows, D features of each.

#include "rows.h"

namespace {

using namespace rss;

// P is the type of the logit's two parts: float, double, or bfloat16 from a product.
template <typename T, typename P>
struct Gate {
  const T* hidden;   // h
  const T* context;  // s
  const P* gate;     // a
  const P* more;     // c
  const T* bias;     // b, [D]; null for none
  std::int64_t rows, features;
  std::int64_t gate_stride, side_stride;  // `side_stride` is of the result and its gradient
  std::int64_t threads;
};

inline Floats sigmoid(Floats x) {
  const Floats least = Floats{} - 80.0f, most = Floats{} + 80.0f;
  const Floats held = x < least ? least : (x > most ? most : x);
  // The power would lose NaN, so it is added again.
  return reciprocal(power_of_two(held * static_cast<float>(-1.0 / kLog2)) + 1.0f) + (held - held);
}

inline Doubles sigmoid(Doubles x) {
  Doubles result = {};
  for (int lane = 0; lane < Lanes<double>::kCount; ++lane) result[lane] = 1.0 / (1.0 + std::exp(-x[lane]));
  return result;
}

// Calls each(row, piece, feature, left, F, h, s) for each vector; `left` features of the row are left.
template <typename T, typename P, typename Each>
Outcome each_vector(const Gate<T, P>& given, const Each& each) {
  return each_row(given.rows, given.threads, [&](std::int64_t row, std::int64_t piece) {
    for (std::int64_t i = 0; i < given.features; i += Lanes<T>::kCount) {
      const std::int64_t at = row * given.features + i, left = given.features - i;
      auto logit = load_some(given.gate + row * given.gate_stride + i, left) +
                   load_some(given.more + at, left);
      if (given.bias != nullptr) logit += load_some(given.bias + i, left);
      each(row, piece, i, left, sigmoid(logit), load_some(given.hidden + at, left),
           load_some(given.context + at, left));
    }
  });
}

template <typename T, typename P>
int mix(const Gate<T, P>& given, T* out) {
  using Vector = typename Lanes<T>::Vector;
  return each_vector(given, [&](std::int64_t row, std::int64_t, std::int64_t i, std::int64_t left,
                                Vector share, Vector hidden, Vector context) {
    // From the nearer end, so that a share of 0 or 1 gives exactly that end.
    const Vector apart = hidden - context;
    const Vector low = context + share * apart, high = hidden - (T(1) - share) * apart;
    store_some(out + row * given.side_stride + i, left, share < T(0.5) ? low : high);
  });
}

template <typename T, typename P>
int mix_back(const Gate<T, P>& given, const T* gradient, T* by_hidden, T* by_context, P* by_gate,
             T* sums) {
  using Vector = typename Lanes<T>::Vector;
  return each_vector(given, [&](std::int64_t row, std::int64_t piece, std::int64_t i,
                                std::int64_t left, Vector share, Vector hidden, Vector context) {
    const Vector moved = load_some(gradient + row * given.side_stride + i, left);
    const Vector taken = moved * share, by_logit = taken * (T(1) - share) * (hidden - context);
    const std::int64_t at = row * given.features + i;
    store_some(by_hidden + at, left, taken);
    store_some(by_context + at, left, moved * (T(1) - share));
    store_some(by_gate + row * given.gate_stride + i, left, by_logit);
    if (sums != nullptr) add_up<T>(sums + piece * given.features, row, i, left, by_logit);
  });
}

}  // namespace

// Rows without a stride are D elements apart; the logit's gradient has `gate_stride`. `sums`
// [(R + 63) / 64, D], or null: that gradient before rounding, summed over each 64 rows.
extern "C" {

#define RSS_EXPORT(KIND, T, P)                                                                \
  int rss_mix_##KIND(const Gate<T, P>* given, T* out) { return mix(*given, out); }            \
  int rss_mix_back_##KIND(const Gate<T, P>* given, const T* gradient, T* by_hidden,           \
                          T* by_context, P* by_gate, T* sums) {                               \
    return mix_back(*given, gradient, by_hidden, by_context, by_gate, sums);                  \
  }
RSS_EXPORT(float, float, float)
RSS_EXPORT(double, double, double)
RSS_EXPORT(bfloat16_float, float, BFloat16)
#undef RSS_EXPORT
}
