// Adadelta in one pass over parameters and averages, in the order of torch's operations: a line of
// memory is read and written once, where torch's passes are seven.

// Here it is worth the compiler's time.
#pragma GCC optimize("O3")

#include "vectors.h"

namespace {

using namespace rss;

template <typename T>
struct Parameter {
  T* values;
  const T* gradient;
  T* square;
  T* change;
  std::int64_t count;
  double rate, decay;
};

template <typename T>
struct Rule {
  T rho, rest, eps, rate, decay;
};

constexpr std::int64_t kPiece = 1 << 14;

// Rounded once where torch rounds once.
template <typename T>
inline T fused(T a, T b, T c) {
#ifdef __FMA__
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

template <typename T, bool kDecays>
void update(T* __restrict values, const T* __restrict gradient, T* __restrict square,
            T* __restrict change, std::int64_t count, Rule<T> rule) {
  for (std::int64_t i = 0; i < count; ++i) {
    T g = gradient[i];
    if (kDecays) g = fused(values[i], rule.decay, g);
    const T a = fused(rule.rest * g, g, square[i] * rule.rho);
    const T d = std::sqrt(change[i] + rule.eps) / std::sqrt(a + rule.eps) * g;
    square[i] = a;
    change[i] = fused(rule.rest * d, d, change[i] * rule.rho);
    values[i] = fused(d, -rule.rate, values[i]);
  }
}

template <typename T>
int step(const Parameter<T>* parameters, std::int64_t number, double rho, double eps,
         std::int64_t threads) {
  std::vector<std::int64_t> starts = {0};  // of each parameter, in pieces
  for (std::int64_t p = 0; p < number; ++p) {
    starts.push_back(starts.back() + (parameters[p].count + kPiece - 1) / kPiece);
  }
  return run(starts.back(), threads, NoMemory(), [&](std::int64_t piece, NoMemory&) {
    const std::int64_t p = std::upper_bound(starts.begin(), starts.end(), piece) - starts.begin() - 1;
    const Parameter<T>& given = parameters[p];
    const std::int64_t first = (piece - starts[p]) * kPiece;
    const std::int64_t count = std::min(kPiece, given.count - first);
    const Rule<T> rule = {static_cast<T>(rho), static_cast<T>(1 - rho), static_cast<T>(eps),
                          static_cast<T>(given.rate), static_cast<T>(given.decay)};
    const auto rows = given.decay != 0 ? update<T, true> : update<T, false>;
    rows(given.values + first, given.gradient + first, given.square + first, given.change + first,
         count, rule);
  });
}

// Rows of a table with a gradient; before each is updated, its averages decay for the steps without.
template <typename T>
struct Rows {
  T* values;                  // [V, D]
  const T* gradient;          // [R, D]
  T* square;                  // [V, D]
  T* change;                  // [V, D]
  T* last;                    // [V], the step that a row was last updated in
  const std::int64_t* index;  // [R], rows of the table, all different
  std::int64_t count, features;
};

template <typename T>
int step_rows(const Rows<T>& given, double step, double rate, double rho, double eps,
              std::int64_t threads) {
  const Rule<T> rule = {static_cast<T>(rho), static_cast<T>(1 - rho), static_cast<T>(eps),
                        static_cast<T>(rate), T(0)};
  const std::int64_t rows = kPiece / std::max<std::int64_t>(1, given.features) + 1;  // of a piece
  return run((given.count + rows - 1) / rows, threads, NoMemory(), [&](std::int64_t piece, NoMemory&) {
    const std::int64_t stop = std::min(given.count, (piece + 1) * rows);
    for (std::int64_t r = piece * rows; r < stop; ++r) {
      const std::int64_t row = given.index[r], at = row * given.features;
      const T decay = static_cast<T>(std::pow(rho, step - 1 - given.last[row]));
      for (std::int64_t i = at; i < at + given.features; ++i) {
        given.square[i] *= decay;
        given.change[i] *= decay;
      }
      update<T, false>(given.values + at, given.gradient + r * given.features, given.square + at,
                       given.change + at, given.features, rule);
      given.last[row] = static_cast<T>(step);
    }
  });
}

}  // namespace

extern "C" {

// values, square, change [V, D]; gradient [R, D]; last [V]; index [R].
int rss_adadelta_rows_float(float* values, const float* gradient, float* square, float* change,
                            float* last, const std::int64_t* index, std::int64_t count,
                            std::int64_t features, double step, double rate, double rho, double eps,
                            std::int64_t threads) {
  const Rows<float> given = {values, gradient, square, change, last, index, count, features};
  return step_rows(given, step, rate, rho, eps, threads);
}

int rss_adadelta_rows_double(double* values, const double* gradient, double* square,
                             double* change, double* last, const std::int64_t* index,
                             std::int64_t count, std::int64_t features, double step, double rate,
                             double rho, double eps, std::int64_t threads) {
  const Rows<double> given = {values, gradient, square, change, last, index, count, features};
  return step_rows(given, step, rate, rho, eps, threads);
}

int rss_adadelta_float(const Parameter<float>* parameters, std::int64_t number, double rho,
                       double eps, std::int64_t threads) {
  return step(parameters, number, rho, eps, threads);
}

int rss_adadelta_double(const Parameter<double>* parameters, std::int64_t number, double rho,
                        double eps, std::int64_t threads) {
  return step(parameters, number, rho, eps, threads);
}
}
