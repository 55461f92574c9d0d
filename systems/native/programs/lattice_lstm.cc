// Lattice-LSTM, the characters of all lattices in parallel (harness/models/lattice_lstm.py).
//
// A step is the next character of every lattice that has one. Words wait until one of them ends that
// has not been computed; then all words that have started form a batch.
#include <omp.h>

#include <numeric>

#include "lstm.h"

namespace {

// All words in the order of their batches.
struct Words {
  Ids tokens, sources, targets;  // sources and targets are rows of states
  std::vector<Index> starts;     // of every batch, and the number of words
  Ids batches;                   // batch before every step; -1 for none
};

// States in rows, step after step; the first step has the start states.
struct States {
  Steps steps;
  Ids labels, characters;  // of all states, and of all after the first step

  void arrange(const Columns& columns, Words& words);
};

void States::arrange(const Columns& columns, Words& words) {
  const Column &tags = columns.at(1), &n_arcs = columns.at(2);
  const std::int32_t *sources = columns.at(3).values, *tokens = columns.at(4).values;
  steps.arrange(columns.at(0));
  const Index n = steps.n_rows(), k = steps.size(0);
  Ids rows(n), step_of(n);
  for (Index step = 0; step < steps.n_steps(); ++step)
    for (Index row = steps.starts[step]; row < steps.starts[step + 1]; ++row) {
      rows[steps.along[row]] = row;
      step_of[steps.along[row]] = step;
    }
  labels.resize(n), characters.resize(n - k);
  struct Word {
    std::int32_t token, source, target;  // states
  };
  std::vector<Word> all;
  Ids newest(steps.n_steps(), -1);  // for every step, last step at which a word starts that ends there
  Index arc = 0;
  for (Index state = 0; state < n; ++state) {
    labels[rows[state]] = tags.values[state];
    const Index first = state - step_of[state];  // sources are numbered within their lattice
    for (Index rank = 0; rank < n_arcs.values[state]; ++rank, ++arc) {
      const std::int32_t source = first + sources[arc];
      if (rank == 0) {
        characters[rows[state] - k] = tokens[arc];
        continue;
      }
      all.push_back({tokens[arc], source, static_cast<std::int32_t>(state)});
      std::int32_t& last = newest[step_of[state]];
      last = std::max(last, step_of[source]);
    }
  }
  words.batches.assign(steps.n_steps(), -1);
  Ids batch_of(steps.n_steps());  // of the words that start at a step
  Index n_batches = 0, last = 0;
  for (Index step = 0; step < steps.n_steps(); ++step) {
    if (newest[step] >= last) {
      words.batches[step] = n_batches++;
      last = step;
    }
    batch_of[step] = n_batches;
  }
  words.starts.assign(n_batches + 2, 0);
  for (const Word& word : all) ++words.starts[batch_of[step_of[word.source]] + 1];
  std::partial_sum(words.starts.begin(), words.starts.end(), words.starts.begin());
  std::vector<Index> next = words.starts;
  for (Ids* ids : {&words.tokens, &words.sources, &words.targets}) ids->resize(all.size());
  for (const Word& word : all) {
    const Index at = next[batch_of[step_of[word.source]]]++;
    words.tokens[at] = word.token;
    words.sources[at] = rows[word.source], words.targets[at] = rows[word.target];
  }
}

// Weights and gates of the cells of one kind of arcs.
struct Cells {
  Cells(Network& network, const std::string& kind, const std::string& table)
      : vectors(network.take_table(table)),
        W(network.take("W_" + kind)),
        U(network.take("U_" + kind)),
        b(network.take("b_" + kind)) {}

  void begin(const Ids& tokens) {
    x = x_memory.take(tokens.size(), W.values.rows);
    vectors.look_up(tokens.data(), x);
    gates = gates_memory.take(tokens.size(), W.values.columns);
    W.multiply_once(x, gates, b.values.at);
  }

  // Gates have been replaced by their gradients.
  void write_gradients(const Ids& tokens, const Matrix& before) {
    multiply_outer(before, gates, U.gradient);
    multiply_outer(x, gates, W.gradient);
    sum_rows(gates, b.gradient.at);
    const Matrix dx = dx_memory.take(x.rows, x.columns);
    W.multiply_transposed(gates, dx);
    vectors.add_gradient(tokens, dx);
  }

  Table& vectors;
  Parameter &W, &U, &b;
  Buffer x_memory, gates_memory, dx_memory;
  Matrix x, gates;
};

class LatticeLSTM : public Network {
 public:
  LatticeLSTM(const Weights& weights, bool is_training)
      : Network(weights, is_training),
        h_0_(take("h_0")),
        c_0_(take("c_0")),
        chars_(*this, "char", "characters"),
        words_(*this, "word", "words"),
        classifier_(*this),
        width_(h_0_.values.columns) {}

  void construct(const Columns& columns) override { states_.arrange(columns, plan_); }

  double forward() override {
    const Steps& steps = states_.steps;
    const Index n = steps.n_rows(), k = steps.size(0);
    h_ = h_memory_.take(n, width_), c_ = c_memory_.take(n, width_);
    fill_rows(h_.rows_from(0, k), h_0_.values.at);
    fill_rows(c_.rows_from(0, k), c_0_.values.at);
    fill_zeros(h_.rows_from(k, n - k)), fill_zeros(c_.rows_from(k, n - k));
    chars_.begin(states_.characters), words_.begin(plan_.tokens);
    sources_h_ = sources_memory_.take(plan_.tokens.size(), width_);
    for (Index step = 1; step < steps.n_steps(); ++step) {
      if (plan_.batches[step] >= 0) compute_words(plan_.batches[step]);
      const Index first = steps.starts[step], size = steps.size(step);
      const Index before = steps.starts[step - 1];
      const Matrix gates = chars_.gates.rows_from(first - k, size);
      chars_.U.add_product(h_.rows_from(before, size), gates);
#pragma omp parallel for if (omp_get_max_threads() > 1)
      for (Index r = 0; r < size; ++r)
        compute_cell<LatticeGates, true>(width_, gates.row(r), c_.row(before + r),
                                         c_.row(first + r), h_.row(first + r));
    }
    return classifier_.forward(h_, states_.labels);
  }

  void backward() override {
    const Steps& steps = states_.steps;
    const Index n = steps.n_rows(), k = steps.size(0);
    dh_ = dh_memory_.take(n, width_), dc_ = dc_memory_.take(n, width_);
    classifier_.backward(dh_);
    fill_zeros(dc_);
    for (Index step = steps.n_steps() - 1; step > 0; --step) {
      const Index first = steps.starts[step], size = steps.size(step);
      const Index before = steps.starts[step - 1];
      const Matrix gates = chars_.gates.rows_from(first - k, size);
#pragma omp parallel for if (omp_get_max_threads() > 1)
      for (Index r = 0; r < size; ++r)
        backpropagate_cell<LatticeGates>(width_, gates.row(r), c_.row(before + r),
                                         dh_.row(first + r), dc_.row(first + r),
                                         dc_.row(before + r));
      chars_.U.add_transposed(gates, dh_.rows_from(before, size));
      if (plan_.batches[step] >= 0) backpropagate_words(plan_.batches[step]);
    }
    sum_rows(dh_.rows_from(0, k), h_0_.gradient.at);
    sum_rows(dc_.rows_from(0, k), c_0_.gradient.at);
    const Matrix befores = befores_memory_.take(n - k, width_);
    for (Index step = 1; step < steps.n_steps(); ++step)
      copy(h_.rows_from(steps.starts[step - 1], steps.size(step)),
           befores.rows_from(steps.starts[step] - k, steps.size(step)));
    chars_.write_gradients(states_.characters, befores);
    words_.write_gradients(plan_.tokens, sources_h_);
  }

  Index n_outputs() const override { return classifier_.size(); }
  void read_outputs(float* scores) override { classifier_.read(states_.steps.along, scores); }

 private:
  // Adds the states of a batch of words to those in which they end.
  void compute_words(Index batch) {
    const Index first = plan_.starts[batch], n = plan_.starts[batch + 1] - first;
    const Matrix gates = words_.gates.rows_from(first, n), h = sources_h_.rows_from(first, n);
    for (Index r = 0; r < n; ++r)
      std::copy_n(h_.row(plan_.sources[first + r]), width_, h.row(r));
    words_.U.add_product(h, gates);
    for (Index r = 0; r < n; ++r) {
      const Index source = plan_.sources[first + r], target = plan_.targets[first + r];
      compute_cell<LatticeGates, true>(width_, gates.row(r), c_.row(source), c_.row(target),
                                       h_.row(target));
    }
  }

  void backpropagate_words(Index batch) {
    const Index first = plan_.starts[batch], n = plan_.starts[batch + 1] - first;
    const Matrix gates = words_.gates.rows_from(first, n);
    for (Index r = 0; r < n; ++r) {
      const Index source = plan_.sources[first + r], target = plan_.targets[first + r];
      backpropagate_cell<LatticeGates>(width_, gates.row(r), c_.row(source), dh_.row(target),
                                       dc_.row(target), dc_.row(source));
    }
    const Matrix dh = dh_words_memory_.take(n, width_);
    words_.U.multiply_transposed(gates, dh);
    for (Index r = 0; r < n; ++r) {
      float* to = dh_.row(plan_.sources[first + r]);
      const float* from = dh.row(r);
#pragma omp simd
      for (Index j = 0; j < width_; ++j) to[j] += from[j];
    }
  }

  Parameter &h_0_, &c_0_;
  Cells chars_, words_;
  Classifier classifier_;
  const Index width_;
  States states_;
  Words plan_;
  Buffer h_memory_, c_memory_, dh_memory_, dc_memory_, sources_memory_, befores_memory_,
      dh_words_memory_;
  Matrix h_, c_, dh_, dc_, sources_h_;
};

const Registration<LatticeLSTM> registration("lattice_lstm");

}  // namespace
