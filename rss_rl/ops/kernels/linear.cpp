// What stands around a matrix product, one pass each: bias and activation after it, their gradients
// before the next one, the fusion gate. A product is float, double or bfloat16; all else is not rounded.
//
// Legend: R rows, D features of each.

#include "vectors.h"

namespace {

using namespace rss;

enum Activation { kNone = 0, kRelu = 1, kElu = 2 };

constexpr std::int64_t kRows = 64;      // of a piece of work; sums over rows come in so many parts
constexpr std::int64_t kPiece = 1 << 14;  // numbers of one, where rows do not matter

struct Memory {
  bool in_range = true;
};

// e^x - 1 of x in [-30, 0], as exact near 0 as elsewhere.
inline Floats less_one(Floats x) {
  const Floats whole = power_of_two(x * static_cast<float>(1.0 / kLog2)) - 1.0f;
  Floats series = x * (1.0f / 720) + 1.0f / 120;
  series = series * x + 1.0f / 24;
  series = series * x + 1.0f / 6;
  series = series * x + 0.5f;
  series = series * x + 1.0f;
  return x > -0.25f ? series * x : whole;
}

inline Doubles less_one(Doubles x) {
  Doubles result = {};
  for (int lane = 0; lane < Lanes<double>::kCount; ++lane) result[lane] = std::expm1(x[lane]);
  return result;
}

// NaN stays NaN in all of these.
template <typename T, int kActivation>
inline typename Lanes<T>::Vector activation(typename Lanes<T>::Vector x) {
  using Vector = typename Lanes<T>::Vector;
  const Vector none = {};
  if (kActivation == kRelu) return x < none ? none : x;
  if (kActivation == kElu) {
    const Vector lowest = none + T(-30);
    const Vector held = x < none ? (x < lowest ? lowest : x) : none;
    return x < none ? less_one(held) : x;
  }
  return x;
}

// Its derivative, by its result.
template <typename T, int kActivation>
inline typename Lanes<T>::Vector slope(typename Lanes<T>::Vector y) {
  using Vector = typename Lanes<T>::Vector;
  const Vector none = {}, one = none + T(1);
  if (kActivation == kRelu) return y <= none ? none : one;
  if (kActivation == kElu) return y > none ? one : y + one;
  return one;
}

inline Floats sigmoid(Floats x) {
  const Floats least = Floats{} - 80.0f, most = Floats{} + 80.0f;
  const Floats held = x < least ? least : (x > most ? most : x);
  // Bits of NaN would not survive the power.
  return reciprocal(power_of_two(held * static_cast<float>(-1.0 / kLog2)) + 1.0f) + (held - held);
}

inline Doubles sigmoid(Doubles x) {
  Doubles result = {};
  for (int lane = 0; lane < Lanes<double>::kCount; ++lane) result[lane] = 1.0 / (1.0 + std::exp(-x[lane]));
  return result;
}

template <typename Row>
Outcome each_piece(std::int64_t rows, std::int64_t threads, const Row& row) {
  return run((rows + kRows - 1) / kRows, threads, Memory(), [&](std::int64_t piece, Memory&) {
    for (std::int64_t r = piece * kRows; r < std::min(rows, (piece + 1) * kRows); ++r) row(r, piece);
  });
}

template <typename T, typename P, int kActivation>
int activate_as(const P* product, const T* bias, T* out, std::int64_t rows, std::int64_t features,
                std::int64_t stride, std::int64_t threads) {
  constexpr int kCount = Lanes<T>::kCount;
  return each_piece(rows, threads, [&](std::int64_t row, std::int64_t) {
    for (std::int64_t i = 0; i < features; i += kCount) {
      auto x = load_kept(product + row * stride + i, features - i);
      if (bias != nullptr) x += load_some<T>(bias + i, features - i);
      store_some<T>(out + row * features + i, features - i, activation<T, kActivation>(x));
    }
  });
}

template <typename T, typename P, int kActivation>
int activate_back_as(const T* gradient, const T* out, P* flow, T* sums, std::int64_t rows,
                     std::int64_t features, std::int64_t stride, std::int64_t threads) {
  constexpr int kCount = Lanes<T>::kCount;
  return each_piece(rows, threads, [&](std::int64_t row, std::int64_t piece) {
    T* sum = sums + piece * features;
    for (std::int64_t i = 0; i < features; i += kCount) {
      auto moved = load_some<T>(gradient + row * features + i, features - i);
      if (kActivation != kNone) {
        moved *= slope<T, kActivation>(load_some<T>(out + row * features + i, features - i));
      }
      store_kept(flow + row * stride + i, features - i, moved);
      if (row % kRows != 0) moved += load_some<T>(sum + i, features - i);
      store_some<T>(sum + i, features - i, moved);
    }
  });
}

template <typename T, typename P>
int activate(const P* product, const T* bias, T* out, std::int64_t rows, std::int64_t features,
             std::int64_t stride, std::int64_t activation, std::int64_t threads) {
  const auto as = activation == kElu    ? activate_as<T, P, kElu>
                  : activation == kRelu ? activate_as<T, P, kRelu>
                                        : activate_as<T, P, kNone>;
  return as(product, bias, out, rows, features, stride, threads);
}

template <typename T, typename P>
int activate_back(const T* gradient, const T* out, P* flow, T* sums, std::int64_t rows,
                  std::int64_t features, std::int64_t stride, std::int64_t activation,
                  std::int64_t threads) {
  const auto as = activation == kElu    ? activate_back_as<T, P, kElu>
                  : activation == kRelu ? activate_back_as<T, P, kRelu>
                                        : activate_back_as<T, P, kNone>;
  return as(gradient, out, flow, sums, rows, features, stride, threads);
}

// out = F h + (1 - F) s, F = sigmoid(a + b). Calls each(first, left, F, h, s) for vectors of them.
template <typename T>
struct Mixed {
  const T* hidden;   // h
  const T* context;  // s
  const T* gate;     // a
  const T* more;     // b
};

template <typename T, typename Each>
Outcome each_vector(const Mixed<T>& given, std::int64_t count, std::int64_t threads,
                    const Each& each) {
  const std::int64_t pieces = (count + kPiece - 1) / kPiece;
  return run(pieces, threads, Memory(), [&](std::int64_t piece, Memory&) {
    const std::int64_t stop = std::min(count, (piece + 1) * kPiece);
    for (std::int64_t i = piece * kPiece; i < stop; i += Lanes<T>::kCount) {
      const std::int64_t left = stop - i;
      const auto gate = load_some<T>(given.gate + i, left);
      const auto share = sigmoid(gate + load_some<T>(given.more + i, left));
      each(i, left, share, load_some<T>(given.hidden + i, left),
           load_some<T>(given.context + i, left));
    }
  });
}

template <typename T>
int mix(const Mixed<T>& given, T* out, std::int64_t count, std::int64_t threads) {
  using Vector = typename Lanes<T>::Vector;
  return each_vector(given, count, threads, [&](std::int64_t i, std::int64_t left, Vector share,
                                                Vector hidden, Vector context) {
    // From the nearer end, which a share of 0 or 1 then gives whatever stands at the other.
    const Vector apart = hidden - context;
    const Vector low = context + share * apart, high = hidden - (T(1) - share) * apart;
    store_some<T>(out + i, left, share < T(0.5) ? low : high);
  });
}

template <typename T>
int mix_back(const Mixed<T>& given, const T* gradient, T* by_hidden, T* by_context, T* by_gate,
             std::int64_t count, std::int64_t threads) {
  using Vector = typename Lanes<T>::Vector;
  return each_vector(given, count, threads, [&](std::int64_t i, std::int64_t left, Vector share,
                                                Vector hidden, Vector context) {
    const Vector moved = load_some<T>(gradient + i, left), taken = moved * share;
    store_some<T>(by_hidden + i, left, taken);
    store_some<T>(by_context + i, left, moved * (T(1) - share));
    store_some<T>(by_gate + i, left, taken * (T(1) - share) * (hidden - context));
  });
}

}  // namespace

// Rows of `product` and `flow` are `stride` numbers apart; all else is contiguous. `bias` may be null.
// `sums` [(R + 63) / 64, D]: what `flow` was before it was rounded, summed over each 64 rows.
extern "C" {

int rss_activate_float(const float* product, const float* bias, float* out, std::int64_t rows,
                       std::int64_t features, std::int64_t stride, std::int64_t activation,
                       std::int64_t threads) {
  return activate(product, bias, out, rows, features, stride, activation, threads);
}

int rss_activate_double(const double* product, const double* bias, double* out, std::int64_t rows,
                        std::int64_t features, std::int64_t stride, std::int64_t activation,
                        std::int64_t threads) {
  return activate(product, bias, out, rows, features, stride, activation, threads);
}

int rss_activate_of_bfloat16_float(const Brief* product, const float* bias, float* out,
                                   std::int64_t rows, std::int64_t features, std::int64_t stride,
                                   std::int64_t activation, std::int64_t threads) {
  return activate(product, bias, out, rows, features, stride, activation, threads);
}

int rss_activate_back_float(const float* gradient, const float* out, float* flow, float* sums,
                            std::int64_t rows, std::int64_t features, std::int64_t stride,
                            std::int64_t activation, std::int64_t threads) {
  return activate_back(gradient, out, flow, sums, rows, features, stride, activation, threads);
}

int rss_activate_back_double(const double* gradient, const double* out, double* flow, double* sums,
                             std::int64_t rows, std::int64_t features, std::int64_t stride,
                             std::int64_t activation, std::int64_t threads) {
  return activate_back(gradient, out, flow, sums, rows, features, stride, activation, threads);
}

int rss_activate_back_to_bfloat16_float(const float* gradient, const float* out, Brief* flow,
                                        float* sums, std::int64_t rows, std::int64_t features,
                                        std::int64_t stride, std::int64_t activation,
                                        std::int64_t threads) {
  return activate_back(gradient, out, flow, sums, rows, features, stride, activation, threads);
}

int rss_mix_float(const float* hidden, const float* context, const float* gate, const float* more, float* out,
                  std::int64_t count, std::int64_t threads) {
  return mix<float>({hidden, context, gate, more}, out, count, threads);
}

int rss_mix_double(const double* hidden, const double* context, const double* gate, const double* more, double* out,
                  std::int64_t count, std::int64_t threads) {
  return mix<double>({hidden, context, gate, more}, out, count, threads);
}

int rss_mix_back_float(const float* hidden, const float* context, const float* gate, const float* more,
                       const float* gradient, float* by_hidden, float* by_context, float* by_gate,
                       std::int64_t count, std::int64_t threads) {
  return mix_back<float>({hidden, context, gate, more}, gradient, by_hidden, by_context, by_gate, count,
                       threads);
}

int rss_mix_back_double(const double* hidden, const double* context, const double* gate, const double* more,
                       const double* gradient, double* by_hidden, double* by_context, double* by_gate,
                       std::int64_t count, std::int64_t threads) {
  return mix_back<double>({hidden, context, gate, more}, gradient, by_hidden, by_context, by_gate, count,
                       threads);
}
}
