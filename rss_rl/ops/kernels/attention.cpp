// Feature-wise attention on a CPU, forward and backward: the allowed pairs and no others.
//
// With s = u_i + v_j, exp(c tanh(s / c) - c) = exp(-2 c q), q = 1 / (1 + E_i F_j), E = e^(2u/c) and
// F = e^(2v/c): a pair costs a multiplication, a reciprocal and a power of two. The gradient of v_j
// is g_j times a quotient of sums that the forward pass accumulates; only the gradients of u and h
// visit the pairs again.
//
// A sequence and a block of its features are one piece of work. The block's tokens are packed first
// and stay in the L1 cache; sums stay in registers.
//
// Legend: M sequences, J heads and I dependents of all of them, sequence after sequence, D features.

// Worth the longer compilation here.
#pragma GCC optimize("O3")

#include "vectors.h"

namespace {

using namespace rss;

// Head scores are v + b. Scores and their gradients may be bfloat16.
template <typename T>
struct Problem {
  const void* head_scores;       // v, [J, D]
  const void* dependent_scores;  // u, [I, D]
  const T* bias;                 // b, [D]; null for none
  const T* values;               // h, [I, D]
  const std::int64_t* heads;  // positions, [J]
  const std::int64_t* dependents;
  const std::int64_t* head_starts;  // first row of each sequence, then the number of rows
  const std::int64_t* dependent_starts;
  std::int64_t sequences, features;
  std::int64_t stride, bfloat16;  // of both kinds of scores and their gradients
  std::int64_t order;  // a head attends 0 before, 1 after itself
  std::int64_t threads;
  double scale;
  double largest;  // largest |score| for which E and F are exact enough

  Given head_side() const { return {head_scores, stride, bfloat16 != 0}; }
  Given dependent_side() const { return {dependent_scores, stride, bfloat16 != 0}; }
};

template <typename T>
typename Lanes<T>::Vector biased(const Problem<T>& given, const Block<T>& block, std::int64_t row,
                                 int part) {
  const auto score = block.load(given.head_side(), row, part);
  return given.bias == nullptr ? score : score + block.load(given.bias, 0, part);
}

// Results of the forward pass, [J, D]: s and, for a backward pass, 1 / sum of weights and ds_j / dv_j;
// s in bfloat16 too if a product needs it.
template <typename T>
struct Forward {
  T* context;
  T* inverse;
  T* by_head;
  BFloat16* bfloat16_context;
};

// The backward pass: results of the forward pass, the gradient of s, in two parts of which the second
// may be null, and a gradient of h to add, or null; then dv, du and dh, and dv summed over each
// sequence, [M, D], or null.
template <typename T>
struct Backward {
  const T* context;
  const T* inverse;
  const T* by_head;
  const T* gradient;
  const void* more_gradient;  // of the scores' type, in rows of D
  const T* more_value;
  void* head_scores;
  void* dependent_scores;
  T* values;
  T* head_sums;
};

// A token's partners on the other side: the first `before` ones and those from `after` on.
struct Partners {
  std::int64_t before, after;
};

// The partners of a side's tokens. Positions are ascending.
void pair_up(const std::int64_t* own, std::int64_t own_count, const std::int64_t* other,
             std::int64_t other_count, bool looks_back, std::vector<Partners>& found) {
  found.clear();
  std::int64_t less = 0;  // rows of the other side before it
  for (std::int64_t row = 0; row < own_count; ++row) {
    while (less < other_count && other[less] < own[row]) ++less;
    const bool same = less < other_count && other[less] == own[row];
    found.push_back({looks_back ? less : 0, looks_back ? other_count : less + same});
  }
}

// Per-thread state.
template <typename T>
struct Memory {
  explicit Memory(const Problem<T>& problem) : given(problem) {}

  void enter(std::int64_t number) {
    const bool back = given.order == 0;
    const std::int64_t first = given.head_starts[number], shown = given.dependent_starts[number];
    const std::int64_t head_count = given.head_starts[number + 1] - first;
    const std::int64_t dependent_count = given.dependent_starts[number + 1] - shown;
    const std::int64_t *own = given.heads + first, *other = given.dependents + shown;
    pair_up(own, head_count, other, dependent_count, back, heads);
    pair_up(other, dependent_count, own, head_count, !back, dependents);
  }

  const Problem<T>& given;
  std::vector<Partners> heads, dependents;  // of `sequence`
  std::vector<typename Lanes<T>::Vector> tokens;
  std::int64_t sequence = -1;
  bool in_range = true;  // all scores so far; false for NaN
};

template <typename T, int kParts, bool kTrain>
void forward_block(const Problem<T>& given, std::int64_t sequence, const Block<T>& block,
                   Memory<T>& memory, const Forward<T>& made) {
  using Vector = typename Lanes<T>::Vector;
  const T rate = static_cast<T>(-2.0 * given.scale / kLog2);
  const std::int64_t first = given.head_starts[sequence];
  const std::int64_t shown = given.dependent_starts[sequence];
  const std::int64_t heads = memory.heads.size(), dependents = memory.dependents.size();
  const Made bfloat16 = {made.bfloat16_context, given.features, true};
  Range<T> range(given.largest);
  std::vector<Vector>& tokens = memory.tokens;
  tokens.resize(2 * kParts * dependents);
  for (std::int64_t i = 0; i < dependents; ++i) {
    for (int part = 0; part < kParts; ++part) {
      Vector* token = &tokens[2 * kParts * i];
      const Vector score = range.check(block.load(given.dependent_side(), shown + i, part));
      token[part] = exponential(score, given.scale);
      token[kParts + part] = block.load(given.values, shown + i, part);
    }
  }
  for (std::int64_t j = 0; j < heads; ++j) {
    const Partners& head = memory.heads[j];
    const std::int64_t row = first + j;
    Vector f[kParts], total[kParts] = {}, sum[kParts] = {}, slope[kParts] = {}, moment[kParts] = {};
    for (int part = 0; part < kParts; ++part) {
      f[part] = exponential(range.check(biased(given, block, row, part)), given.scale);
    }
    const auto look = [&](std::int64_t start, std::int64_t stop) {
      for (std::int64_t i = start; i < stop; ++i) {
        const Vector* token = &tokens[2 * kParts * i];
        for (int part = 0; part < kParts; ++part) {
          const Vector q = reciprocal(token[part] * f[part] + T(1));
          const Vector weight = power_of_two(q * rate);
          const Vector h = token[kParts + part];
          total[part] += weight;
          sum[part] += weight * h;
          if (kTrain) {
            const Vector change = weight * (q - q * q);
            slope[part] += change;
            moment[part] += change * h;
          }
        }
      }
    };
    look(0, head.before);
    look(head.after, dependents);
    for (int part = 0; part < kParts; ++part) {
      const Vector share = total[part] > 0 ? T(1) / total[part] : Vector{};
      const Vector mean = sum[part] * share;
      block.store(made.context, row, part, mean);
      if (made.bfloat16_context != nullptr) block.store(bfloat16, row, part, mean);
      if (kTrain) {
        block.store(made.inverse, row, part, share);
        block.store(made.by_head, row, part, (moment[part] - mean * slope[part]) * share * T(4));
      }
    }
  }
  memory.in_range &= range.holds();
}

template <typename T, int kParts>
void backward_block(const Problem<T>& given, std::int64_t sequence, const Block<T>& block,
                    Memory<T>& memory, const Backward<T>& back) {
  using Vector = typename Lanes<T>::Vector;
  const T rate = static_cast<T>(-2.0 * given.scale / kLog2);
  const bool bfloat16 = given.bfloat16 != 0;
  const Made by_head = {back.head_scores, given.stride, bfloat16};
  const Made by_dependent = {back.dependent_scores, given.stride, bfloat16};
  const Given more = {back.more_gradient, given.features, bfloat16};
  const std::int64_t first = given.head_starts[sequence];
  const std::int64_t shown = given.dependent_starts[sequence];
  const std::int64_t heads = memory.heads.size(), dependents = memory.dependents.size();
  std::vector<Vector>& tokens = memory.tokens;
  tokens.resize(3 * kParts * heads);
  Vector head_sum[kParts] = {};
  for (std::int64_t j = 0; j < heads; ++j) {
    const std::int64_t row = first + j;
    for (int part = 0; part < kParts; ++part) {
      Vector* token = &tokens[3 * kParts * j];
      Vector gradient = block.load(back.gradient, row, part);
      if (more.first != nullptr) gradient += block.load(more, row, part);
      token[part] = exponential(biased(given, block, row, part), given.scale);
      token[kParts + part] = gradient * block.load(back.inverse, row, part);
      token[2 * kParts + part] = block.load(back.context, row, part);
      const Vector moved = gradient * block.load(back.by_head, row, part);
      block.store(by_head, row, part, moved);
      head_sum[part] += moved;
    }
  }
  for (int part = 0; back.head_sums != nullptr && part < kParts; ++part) {
    block.store(back.head_sums, sequence, part, head_sum[part]);
  }
  for (std::int64_t i = 0; i < dependents; ++i) {
    const Partners& dependent = memory.dependents[i];
    const std::int64_t row = shown + i;
    Vector e[kParts], h[kParts], flow[kParts] = {}, slope[kParts] = {};
    for (int part = 0; part < kParts; ++part) {
      e[part] = exponential(block.load(given.dependent_side(), row, part), given.scale);
      h[part] = block.load(given.values, row, part);
    }
    const auto look = [&](std::int64_t start, std::int64_t stop) {
      for (std::int64_t j = start; j < stop; ++j) {
        const Vector* token = &tokens[3 * kParts * j];
        for (int part = 0; part < kParts; ++part) {
          const Vector q = reciprocal(token[part] * e[part] + T(1));
          const Vector moved = power_of_two(q * rate) * token[kParts + part];
          flow[part] += moved;
          slope[part] += moved * (q - q * q) * (h[part] - token[2 * kParts + part]);
        }
      }
    };
    look(0, dependent.before);
    look(dependent.after, heads);
    for (int part = 0; part < kParts; ++part) {
      if (back.more_value != nullptr) flow[part] += block.load(back.more_value, row, part);
      block.store(back.values, row, part, flow[part]);
      block.store(by_dependent, row, part, slope[part] * T(4));
    }
  }
}

template <typename T>
int forward(const Problem<T>& given, const Forward<T>& made) {
  const auto work = [&](std::int64_t m, const Block<T>& block, auto parts, Memory<T>& memory) {
    if (made.inverse == nullptr) {
      forward_block<T, parts, false>(given, m, block, memory, made);
    } else {
      forward_block<T, parts, true>(given, m, block, memory, made);
    }
  };
  return run_blocks<T>(given.sequences, given.features, given.threads, Memory<T>(given), work);
}

template <typename T>
int backward(const Problem<T>& given, const Backward<T>& back) {
  const auto work = [&](std::int64_t m, const Block<T>& block, auto parts, Memory<T>& memory) {
    backward_block<T, parts>(given, m, block, memory, back);
  };
  return run_blocks<T>(given.sequences, given.features, given.threads, Memory<T>(given), work);
}

}  // namespace

// All return an Outcome. Tensors other than scores are contiguous. Without `inverse` and `by_head` the
// forward pass skips the sums for the backward pass, which assumes that all scores were in range.
extern "C" {

#define RSS_EXPORT(T)                                                                         \
  int rss_attention_forward_##T(const Problem<T>* given, const Forward<T>* made) {            \
    return forward(*given, *made);                                                            \
  }                                                                                           \
  int rss_attention_backward_##T(const Problem<T>* given, const Backward<T>* back) {          \
    return backward(*given, *back);                                                           \
  }
RSS_EXPORT(float)
RSS_EXPORT(double)
#undef RSS_EXPORT
}
