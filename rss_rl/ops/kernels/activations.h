// Activations between two products, and their derivatives.

#pragma once

#include "vectors.h"

namespace rss {

enum Activation { kNone = 0, kRelu = 1, kElu = 2 };

// e^x - 1 of x in [-30, 0], exact near 0 too.
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

// All of these propagate NaN.
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

// The derivative, from the activation's result.
template <typename T, int kActivation>
inline typename Lanes<T>::Vector slope(typename Lanes<T>::Vector y) {
  using Vector = typename Lanes<T>::Vector;
  const Vector none = {}, one = none + T(1);
  if (kActivation == kRelu) return y <= none ? none : one;
  if (kActivation == kElu) return y > none ? one : y + one;
  return one;
}

}  // namespace rss
