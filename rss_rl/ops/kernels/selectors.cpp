// Selection logits w . sigma(W [x; pool; x * pool] + b) + c of several selectors at once: the work around
// the products. Rows are the real tokens only, sentence after sentence.
//
// Legend: B sentences, N tokens of a padded one, T real tokens of all, E features, R selectors of D hidden
// features each.

#include "activations.h"

namespace {

using namespace rss;

template <typename T>
struct Selectors {
  const T* tokens;             // [B, N, E]
  const unsigned char* valid;  // [B, N]
  const std::int64_t* starts;  // [B + 1], row of each sentence's first real token, and T
  std::int64_t sentences, width, features, selectors, hidden, threads;
};

// Calls work(sentence) for each.
template <typename T, typename Work>
Outcome each_sentence(const Selectors<T>& given, const Work& work) {
  return run(given.sentences, given.threads, NoMemory(),
             [&](std::int64_t sentence, NoMemory&) { work(sentence); });
}

// Calls token(row, position) for the real tokens of a sentence, in order.
template <typename T, typename Token>
void each_token(const Selectors<T>& given, std::int64_t sentence, const Token& token) {
  std::int64_t row = given.starts[sentence];
  for (std::int64_t position = 0; position < given.width; ++position) {
    if (given.valid[sentence * given.width + position]) token(row++, position);
  }
}

// Rows x [T, E], or [x, x * pool] [T, 2 E], and their sentences' means, [B, E].
template <typename T, typename P, bool kPairs>
int rows_as(const Selectors<T>& given, P* rows, T* pool) {
  using Vector = typename Lanes<T>::Vector;
  const std::int64_t features = given.features, columns = (kPairs ? 2 : 1) * features;
  return each_sentence(given, [&](std::int64_t b) {
    const T* words = given.tokens + b * given.width * features;
    const std::int64_t count = given.starts[b + 1] - given.starts[b];
    const T share = T(1) / static_cast<T>(std::max<std::int64_t>(count, 1));
    for (std::int64_t i = 0; i < features; i += Lanes<T>::kCount) {
      const std::int64_t left = features - i;
      Vector sum = {};
      each_token(given, b, [&](std::int64_t, std::int64_t n) {
        sum += load_some(words + n * features + i, left);
      });
      const Vector mean = sum * share;
      store_some(pool + b * features + i, left, mean);
      each_token(given, b, [&](std::int64_t row, std::int64_t n) {
        const Vector word = load_some(words + n * features + i, left);
        store_some(rows + row * columns + i, left, word);
        if constexpr (kPairs) store_some(rows + row * columns + features + i, left, word * mean);
      });
    }
  });
}

template <typename T, typename P>
int make_rows(const Selectors<T>& given, bool pairs, P* rows, T* pool) {
  return pairs ? rows_as<T, P, true>(given, rows, pool) : rows_as<T, P, false>(given, rows, pool);
}

// Inputs of the logits: products of the rows [T, R D] and of the means [B, R D], b [R D], w [R D] and c [R].
template <typename T, typename P>
struct Products {
  const P* by_row;
  const P* by_sentence;
  const T* bias;
  const T* weight;
  const T* last;
};

template <typename T, typename P, int kActivation>
inline typename Lanes<T>::Vector hidden(const Products<T, P>& made, std::int64_t row, std::int64_t mean,
                                        std::int64_t column, std::int64_t left) {
  return activation<T, kActivation>(load_some(made.by_row + row + column, left) +
                                    (load_some(made.by_sentence + mean + column, left) +
                                     load_some(made.bias + column, left)));
}

template <typename T, typename P, int kActivation>
int logits_as(const Selectors<T>& given, const Products<T, P>& made, T* logits) {
  using Vector = typename Lanes<T>::Vector;
  const std::int64_t all = given.selectors * given.hidden;
  return each_sentence(given, [&](std::int64_t b) {
    T* out = logits + b * given.selectors * given.width;
    std::fill_n(out, given.selectors * given.width, T(0));
    each_token(given, b, [&](std::int64_t row, std::int64_t n) {
      for (std::int64_t r = 0; r < given.selectors; ++r) {
        Vector sum = {};
        for (std::int64_t i = 0; i < given.hidden; i += Lanes<T>::kCount) {
          const std::int64_t column = r * given.hidden + i, left = given.hidden - i;
          sum += hidden<T, P, kActivation>(made, row * all, b * all, column, left) *
                 load_some(made.weight + column, left);
        }
        T total = made.last[r];
        for (int lane = 0; lane < Lanes<T>::kCount; ++lane) total += sum[lane];
        out[r * given.width + n] = total;
      }
    });
  });
}

// The gradient of the products' sum [T, R D], and sums over each sentence's tokens: of it and of w's
// gradient [B, R D], of c's [B, R].
template <typename T, typename P, int kActivation>
int logits_back_as(const Selectors<T>& given, const Products<T, P>& made, const T* gradient, P* flow,
                   T* flow_sums, T* weight_sums, T* last_sums) {
  using Vector = typename Lanes<T>::Vector;
  const std::int64_t all = given.selectors * given.hidden;
  return each_sentence(given, [&](std::int64_t b) {
    std::fill_n(flow_sums + b * all, all, T(0));
    std::fill_n(weight_sums + b * all, all, T(0));
    std::fill_n(last_sums + b * given.selectors, given.selectors, T(0));
    each_token(given, b, [&](std::int64_t row, std::int64_t n) {
      for (std::int64_t r = 0; r < given.selectors; ++r) {
        const T moved = gradient[(b * given.selectors + r) * given.width + n];
        last_sums[b * given.selectors + r] += moved;
        for (std::int64_t i = 0; i < given.hidden; i += Lanes<T>::kCount) {
          const std::int64_t column = r * given.hidden + i, left = given.hidden - i;
          const Vector y = hidden<T, P, kActivation>(made, row * all, b * all, column, left);
          const Vector by_sum = moved * load_some(made.weight + column, left) * slope<T, kActivation>(y);
          store_some(flow + row * all + column, left, by_sum);
          T* sums = flow_sums + b * all + column;
          store_some(sums, left, load_some(sums, left) + by_sum);
          sums = weight_sums + b * all + column;
          store_some(sums, left, load_some(sums, left) + moved * y);
        }
      }
    });
  });
}

template <typename T, typename P>
int logits(const Selectors<T>& given, const Products<T, P>& made, std::int64_t activation, T* out) {
  const auto as = activation == kElu ? logits_as<T, P, kElu> : logits_as<T, P, kRelu>;
  return as(given, made, out);
}

template <typename T, typename P>
int logits_back(const Selectors<T>& given, const Products<T, P>& made, std::int64_t activation,
                const T* gradient, P* flow, T* flow_sums, T* weight_sums, T* last_sums) {
  const auto as = activation == kElu ? logits_back_as<T, P, kElu> : logits_back_as<T, P, kRelu>;
  return as(given, made, gradient, flow, flow_sums, weight_sums, last_sums);
}

}  // namespace

// Tensors are contiguous. Logits [B, R, N] are 0 on padding, and their gradient is not read there; an
// activation is relu or elu.
extern "C" {

#define RSS_EXPORT(KIND, T, P)                                                                  \
  int rss_selector_rows_##KIND(const Selectors<T>* given, std::int64_t pairs, P* rows,          \
                               T* pool) {                                                       \
    return make_rows(*given, pairs != 0, rows, pool);                                           \
  }                                                                                             \
  int rss_selector_logits_##KIND(const Selectors<T>* given, const Products<T, P>* made,         \
                                 std::int64_t activation, T* out) {                             \
    return logits(*given, *made, activation, out);                                              \
  }                                                                                             \
  int rss_selector_back_##KIND(const Selectors<T>* given, const Products<T, P>* made,           \
                               std::int64_t activation, const T* gradient, P* flow,             \
                               T* flow_sums, T* weight_sums, T* last_sums) {                    \
    return logits_back(*given, *made, activation, gradient, flow, flow_sums, weight_sums,       \
                       last_sums);                                                              \
  }
RSS_EXPORT(float, float, float)
RSS_EXPORT(double, double, double)
RSS_EXPORT(bfloat16_float, float, BFloat16)
#undef RSS_EXPORT
}
