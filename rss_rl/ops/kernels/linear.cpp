// The element-wise work around a matrix product, one pass each: bias and activation after it, their
// gradients before the next one. A product is float, double or bfloat16; nothing else is rounded.
//
// Legend: R rows, D features of each.

#include "activations.h"
#include "rows.h"

namespace {

using namespace rss;

template <typename T, typename P, int kActivation>
int activate_as(const P* product, const T* bias, T* out, P* rounded, std::int64_t rows,
                std::int64_t features, std::int64_t stride, std::int64_t threads) {
  constexpr int kCount = Lanes<T>::kCount;
  return each_row(rows, threads, [&](std::int64_t row, std::int64_t) {
    for (std::int64_t i = 0; i < features; i += kCount) {
      auto x = load_some(product + row * stride + i, features - i);
      if (bias != nullptr) x += load_some(bias + i, features - i);
      const auto y = activation<T, kActivation>(x);
      store_some(out + row * features + i, features - i, y);
      if (rounded != nullptr) store_some(rounded + row * features + i, features - i, y);
    }
  });
}

template <typename T, typename P, int kActivation>
int activate_back_as(const T* gradient, const P* more, const T* out, P* flow, T* sums,
                     std::int64_t rows, std::int64_t features, std::int64_t stride,
                     std::int64_t threads) {
  constexpr int kCount = Lanes<T>::kCount;
  return each_row(rows, threads, [&](std::int64_t row, std::int64_t piece) {
    for (std::int64_t i = 0; i < features; i += kCount) {
      auto moved = load_some(gradient + row * features + i, features - i);
      if (more != nullptr) moved += load_some(more + row * features + i, features - i);
      if (kActivation != kNone) {
        moved *= slope<T, kActivation>(load_some(out + row * features + i, features - i));
      }
      store_some(flow + row * stride + i, features - i, moved);
      add_up<T>(sums + piece * features, row, i, features - i, moved);
    }
  });
}

template <typename T, typename P>
int activate(const P* product, const T* bias, T* out, P* rounded, std::int64_t rows,
             std::int64_t features, std::int64_t stride, std::int64_t activation,
             std::int64_t threads) {
  const auto as = activation == kElu    ? activate_as<T, P, kElu>
                  : activation == kRelu ? activate_as<T, P, kRelu>
                                        : activate_as<T, P, kNone>;
  return as(product, bias, out, rounded, rows, features, stride, threads);
}

template <typename T, typename P>
int activate_back(const T* gradient, const P* more, const T* out, P* flow, T* sums,
                  std::int64_t rows, std::int64_t features, std::int64_t stride,
                  std::int64_t activation, std::int64_t threads) {
  const auto as = activation == kElu    ? activate_back_as<T, P, kElu>
                  : activation == kRelu ? activate_back_as<T, P, kRelu>
                                        : activate_back_as<T, P, kNone>;
  return as(gradient, more, out, flow, sums, rows, features, stride, threads);
}

}  // namespace

// Rows of `product` and `flow` are `stride` elements apart; all else is contiguous. `bias`, `rounded` (a
// copy of the result) and `more` (added to the gradient) may be null. `sums` [(R + 63) / 64, D]: `flow`
// before rounding, summed over each 64 rows.
extern "C" {

#define RSS_EXPORT(KIND, T, P)                                                                  \
  int rss_activate_##KIND(const P* product, const T* bias, T* out, P* rounded,                  \
                          std::int64_t rows, std::int64_t features, std::int64_t stride,        \
                          std::int64_t activation, std::int64_t threads) {                      \
    return activate(product, bias, out, rounded, rows, features, stride, activation, threads);  \
  }                                                                                             \
  int rss_activate_back_##KIND(const T* gradient, const P* more, const T* out, P* flow,         \
                               T* sums, std::int64_t rows, std::int64_t features,               \
                               std::int64_t stride, std::int64_t activation,                    \
                               std::int64_t threads) {                                          \
    return activate_back(gradient, more, out, flow, sums, rows, features, stride, activation,   \
                         threads);                                                              \
  }
RSS_EXPORT(float, float, float)
RSS_EXPORT(double, double, double)
RSS_EXPORT(bfloat16_float, float, BFloat16)
#undef RSS_EXPORT
}
