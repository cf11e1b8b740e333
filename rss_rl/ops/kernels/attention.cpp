// Feature-wise attention on a CPU, forward and backward: the allowed pairs and no others.
//
// With s = u_i + v_j, exp(c tanh(s / c) - c) = exp(-2 c q), q = 1 / (1 + E_i F_j), E = e^(2u/c) and
// F = e^(2v/c): a pair costs a multiplication, a reciprocal and a power of two. The gradient by head
// is g_j times a quotient of sums that the forward pass takes as it goes; only the gradients by
// dependent go over the pairs again.
//
// A sequence and a block of its features are one piece of work. What the block's tokens need is
// copied together first, and stays in the first cache; sums stay in registers.
//
// Legend: M sequences, J heads, I dependents, D features.

// Here it is worth the compiler's time.
#pragma GCC optimize("O3")

#include "vectors.h"

namespace {

using namespace rss;

template <typename T>
struct Problem {
  const T* head_scores;       // v, [M, J, D]
  const T* dependent_scores;  // u, [M, I, D]
  const T* values;            // h, [M, I, D]
  const std::int64_t* heads;  // positions, [M, J]; negative where none is kept
  const std::int64_t* dependents;
  std::int64_t sequences, head_count, dependent_count, features;
  std::int64_t order;  // a head looks 0 before, 1 after, 2 before and after itself
  std::int64_t threads;
  double scale;
  double largest;  // score, of either sign, of which E and F are as exact as they must be
};

// What a token of one side is paired with: the first `before` kept ones of the other and those from
// `after` on.
struct Partners {
  std::int64_t row, before, after;
};

// The kept tokens of a side, in order, and their partners. Positions rise.
void pair_up(const std::int64_t* own, std::int64_t own_count, const std::int64_t* other,
             std::int64_t other_count, bool looks_back, bool looks_ahead,
             std::vector<Partners>& found) {
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < other_count; ++i) kept += other[i] >= 0;
  found.clear();
  std::int64_t next = 0, less = 0;  // row of the other side, and kept ones before it
  for (std::int64_t row = 0; row < own_count; ++row) {
    if (own[row] < 0) continue;
    while (next < other_count && other[next] < own[row]) less += other[next++] >= 0;
    const bool same = next < other_count && other[next] == own[row];
    found.push_back({row, looks_back ? less : 0, looks_ahead ? less + same : kept});
  }
}

// A thread's memory.
template <typename T>
struct Memory {
  explicit Memory(const Problem<T>& problem) : given(problem) {}

  void enter(std::int64_t number) {
    const bool back = given.order != 1, ahead = given.order != 0;
    const std::int64_t* own = given.heads + number * given.head_count;
    const std::int64_t* other = given.dependents + number * given.dependent_count;
    pair_up(own, given.head_count, other, given.dependent_count, back, ahead, heads);
    pair_up(other, given.dependent_count, own, given.head_count, ahead, back, dependents);
  }

  const Problem<T>& given;
  std::vector<Partners> heads, dependents;  // of `sequence`
  std::vector<typename Lanes<T>::Vector> tokens;
  std::int64_t sequence = -1;
  bool in_range = true;  // all scores that were looked at; not so NaN
};

template <typename T, int kParts, bool kTrain>
void forward_block(const Problem<T>& given, std::int64_t sequence, const Block<T>& block,
                   Memory<T>& memory, T* context, T* inverse, T* by_head) {
  using Vector = typename Lanes<T>::Vector;
  const T rate = static_cast<T>(-2.0 * given.scale / kLog2);
  const std::int64_t shown = sequence * given.dependent_count;
  Range<T> range(given.largest);
  std::vector<Vector>& tokens = memory.tokens;
  tokens.resize(2 * kParts * memory.dependents.size());
  for (std::size_t i = 0; i < memory.dependents.size(); ++i) {
    const std::int64_t row = shown + memory.dependents[i].row;
    for (int part = 0; part < kParts; ++part) {
      Vector* token = &tokens[2 * kParts * i];
      const Vector score = range.check(block.load(given.dependent_scores, row, part));
      token[part] = exponential(score, given.scale);
      token[kParts + part] = block.load(given.values, row, part);
    }
  }
  const std::int64_t kept = memory.dependents.size();
  const std::int64_t first = sequence * given.head_count;
  std::int64_t written = 0;
  const auto clear_until = [&](std::int64_t row) {
    for (; written < row; ++written) {
      block.clear(context, first + written);
      if (kTrain) block.clear(inverse, first + written);
      if (kTrain) block.clear(by_head, first + written);
    }
    written = row + 1;
  };
  for (const Partners& head : memory.heads) {
    clear_until(head.row);
    const std::int64_t row = first + head.row;
    Vector f[kParts], total[kParts] = {}, sum[kParts] = {}, slope[kParts] = {}, moment[kParts] = {};
    for (int part = 0; part < kParts; ++part) {
      const Vector score = range.check(block.load(given.head_scores, row, part));
      f[part] = exponential(score, given.scale);
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
    look(head.after, kept);
    for (int part = 0; part < kParts; ++part) {
      const Vector share = total[part] > 0 ? T(1) / total[part] : Vector{};
      const Vector mean = sum[part] * share;
      block.store(context, row, part, mean);
      if (kTrain) {
        block.store(inverse, row, part, share);
        block.store(by_head, row, part, (moment[part] - mean * slope[part]) * share * T(4));
      }
    }
  }
  clear_until(given.head_count);
  memory.in_range &= range.holds();
}

template <typename T, int kParts>
void backward_block(const Problem<T>& given, std::int64_t sequence, const Block<T>& block,
                    Memory<T>& memory, const T* context, const T* inverse, const T* gradient,
                    T* by_dependent, T* by_value) {
  using Vector = typename Lanes<T>::Vector;
  const T rate = static_cast<T>(-2.0 * given.scale / kLog2);
  const std::int64_t looking = sequence * given.head_count;
  std::vector<Vector>& tokens = memory.tokens;
  tokens.resize(3 * kParts * memory.heads.size());
  for (std::size_t j = 0; j < memory.heads.size(); ++j) {
    const std::int64_t row = looking + memory.heads[j].row;
    for (int part = 0; part < kParts; ++part) {
      Vector* token = &tokens[3 * kParts * j];
      token[part] = exponential(block.load(given.head_scores, row, part), given.scale);
      token[kParts + part] = block.load(gradient, row, part) * block.load(inverse, row, part);
      token[2 * kParts + part] = block.load(context, row, part);
    }
  }
  const std::int64_t kept = memory.heads.size();
  const std::int64_t first = sequence * given.dependent_count;
  std::int64_t written = 0;
  const auto clear_until = [&](std::int64_t row) {
    for (; written < row; ++written) {
      block.clear(by_dependent, first + written);
      block.clear(by_value, first + written);
    }
    written = row + 1;
  };
  for (const Partners& dependent : memory.dependents) {
    clear_until(dependent.row);
    const std::int64_t row = first + dependent.row;
    Vector e[kParts], h[kParts], flow[kParts] = {}, slope[kParts] = {};
    for (int part = 0; part < kParts; ++part) {
      e[part] = exponential(block.load(given.dependent_scores, row, part), given.scale);
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
    look(dependent.after, kept);
    for (int part = 0; part < kParts; ++part) {
      block.store(by_value, row, part, flow[part]);
      block.store(by_dependent, row, part, slope[part] * T(4));
    }
  }
  clear_until(given.dependent_count);
}

template <typename T>
int forward(const Problem<T>& given, T* context, T* inverse, T* by_head) {
  const auto work = [&](std::int64_t m, const Block<T>& block, auto parts, Memory<T>& memory) {
    if (inverse == nullptr) {
      forward_block<T, parts, false>(given, m, block, memory, context, inverse, by_head);
    } else {
      forward_block<T, parts, true>(given, m, block, memory, context, inverse, by_head);
    }
  };
  return run_blocks<T>(given.sequences, given.features, given.threads, Memory<T>(given), work);
}

template <typename T>
int backward(const Problem<T>& given, const T* context, const T* inverse, const T* gradient,
             T* by_dependent, T* by_value) {
  const auto work = [&](std::int64_t m, const Block<T>& block, auto parts, Memory<T>& memory) {
    backward_block<T, parts>(given, m, block, memory, context, inverse, gradient, by_dependent,
                             by_value);
  };
  return run_blocks<T>(given.sequences, given.features, given.threads, Memory<T>(given), work);
}

}  // namespace

// All return an Outcome. Tensors are contiguous. Without `inverse` and `by_head` the forward pass takes
// no sums for a backward one. The backward pass is for what the forward pass found in range.
extern "C" {

int rss_attention_forward_float(const Problem<float>* given, float* context, float* inverse, float* by_head) {
  return forward(*given, context, inverse, by_head);
}

int rss_attention_forward_double(const Problem<double>* given, double* context, double* inverse,
                       double* by_head) {
  return forward(*given, context, inverse, by_head);
}

int rss_attention_backward_float(const Problem<float>* given, const float* context, const float* inverse,
                       const float* gradient, float* by_dependent, float* by_value) {
  return backward(*given, context, inverse, gradient, by_dependent, by_value);
}

int rss_attention_backward_double(const Problem<double>* given, const double* context, const double* inverse,
                        const double* gradient, double* by_dependent, double* by_value) {
  return backward(*given, context, inverse, gradient, by_dependent, by_value);
}
}
