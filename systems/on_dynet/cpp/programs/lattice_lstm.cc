// Lattice-LSTM: the graph of systems/on_dynet/models/lattices.py, operator by operator.
#include "program.h"

using namespace dynet;

namespace {

struct State {
  Expression h, c;
};

// One of the gates f, i, o and g, which is their order here.
struct Gate {
  Expression b, W, U;
};

class Cell {
 public:
  virtual ~Cell() = default;
  virtual State step(const Expression& x, const State& before) const = 0;
};

// DyNet's operator for all gates, whose matrices have them in the order i, f, o, g.
class FusedCell : public Cell {
 public:
  FusedCell(const Expressions& b, const Expression& W, const Expression& U) : W_(W), U_(U) {
    // The operator adds 1 to f, which our biases have in them already.
    const Expression joined = concatenate({b[1], b[0] - 1.0f, b[2], b[3]});
    // DyNet adds the gradient of what all nodes of a batch share at the start of the batch that
    // made it; reshape is never batched, so that this is its place.
    b_ = reshape(joined, joined.dim());
  }

  State step(const Expression& x, const State& before) const override {
    const Expression gates = vanilla_lstm_gates(x, before.h, W_, U_, b_);
    const Expression c = vanilla_lstm_c(before.c, gates);
    const unsigned width = c.dim()[0];
    return {cmult(pick_range(gates, 2 * width, 3 * width), tanh(c)), c};
  }

 private:
  Expression b_, W_, U_;
};

// Every gate by itself, W x + b apart from U h: DyNet batches it over all inputs beforehand.
class HoistedCell : public Cell {
 public:
  explicit HoistedCell(const std::vector<Gate>& fiog) : fiog_(fiog) {}

  State step(const Expression& x, const State& before) const override {
    const auto gate = [&](const Gate& k) {
      return affine_transform({k.b, k.W, x}) + k.U * before.h;
    };
    const Expression f = logistic(gate(fiog_[0])), i = logistic(gate(fiog_[1]));
    const Expression o = logistic(gate(fiog_[2]));
    const Expression c = cmult(i, tanh(gate(fiog_[3]))) + cmult(f, before.c);
    return {cmult(o, tanh(c)), c};
  }

 private:
  std::vector<Gate> fiog_;
};

class LatticeLSTM : public Program {
 private:
  void build(const std::vector<Column>& columns) override {
    const Column &sizes = columns.at(0), &tags = columns.at(1), &n_arcs = columns.at(2);
    const std::int32_t *sources = columns.at(3).values, *tokens = columns.at(4).values;
    const LookupParameter characters = table("characters"), words = table("words");
    const std::unique_ptr<Cell> char_cell = take_cell("char"), word_cell = take_cell("word");
    const State start{weight("h_0"), weight("c_0")};
    std::vector<State> states;
    states.reserve(tags.size);
    std::int64_t arc = 0;
    for (std::int64_t lattice = 0; lattice < sizes.size; ++lattice) {
      const std::size_t first = states.size();  // sources are numbered within their lattice
      states.push_back(start);
      for (std::int32_t k = 1; k < sizes.values[lattice]; ++k) {
        const std::int64_t own = arc, end = arc + n_arcs.values[states.size()];
        Expressions h, c;
        for (; arc < end; ++arc) {  // its character comes first
          const bool is_word = arc > own;
          const Expression x = look_up(is_word ? words : characters, tokens[arc]);
          const Cell& cell = is_word ? *word_cell : *char_cell;
          const State found = cell.step(x, states[first + sources[arc]]);
          h.push_back(found.h);
          c.push_back(found.c);
        }
        states.push_back(h.size() == 1 ? State{h[0], c[0]} : State{sum(h), sum(c)});
      }
    }
    Expressions hidden;
    hidden.reserve(states.size());
    for (const State& state : states) hidden.push_back(state.h);
    classify(hidden, as_labels(tags));
  }

  std::unique_ptr<Cell> take_cell(const std::string& arc) {
    const std::string W = "W_" + arc, U = "U_" + arc;
    Expressions b;
    for (const char* k : {".0", ".1", ".2", ".3"}) b.push_back(weight("b_" + arc + k));
    if (has_weight(W)) {
      return std::unique_ptr<Cell>(new FusedCell(b, weight(W), weight(U)));
    }
    std::vector<Gate> fiog;
    for (const char* k : {".0", ".1", ".2", ".3"}) {
      fiog.push_back({b[fiog.size()], weight(W + k), weight(U + k)});
    }
    return std::unique_ptr<Cell>(new HoistedCell(fiog));
  }
};

const Registration<LatticeLSTM> lattice_lstm("lattice_lstm");

}  // namespace
