// Lattice-LSTM: the graph of systems/on_dynet/models/lattices.py, operator by operator.
#include "program.h"

using namespace dynet;

namespace {

const unsigned most_fused = 128;  // as MAX_FUSED of systems/on_dynet/layers.py

struct State {
  Expression h, c;
};

// The four gates, in the order in which the weights have them.
struct Gate {
  Expression b, W, U;
};

class Cell {
 public:
  virtual ~Cell() = default;
  virtual State step(const Expression& x, const State& before) const = 0;
};

// DyNet's operator for all gates.
class FusedCell : public Cell {
 public:
  explicit FusedCell(const std::vector<Gate>& fiog) {
    const Gate &f = fiog[0], &i = fiog[1], &o = fiog[2], &g = fiog[3];
    // The operator adds 1 to f, which our biases have in them already.
    b_ = alone(concatenate({i.b, f.b - 1.0f, o.b, g.b}));
    W_ = alone(concatenate({i.W, f.W, o.W, g.W}));
    U_ = alone(concatenate({i.U, f.U, o.U, g.U}));
  }

  State step(const Expression& x, const State& before) const override {
    const Expression gates = vanilla_lstm_gates(x, before.h, W_, U_, b_);
    const Expression c = vanilla_lstm_c(before.c, gates);
    const unsigned width = c.dim()[0];
    return {cmult(pick_range(gates, 2 * width, 3 * width), tanh(c)), c};
  }

 private:
  // DyNet adds the gradient of what all nodes of a batch share at the start of the batch that made
  // it; reshape is never batched, so that this is its place.
  static Expression alone(const Expression& x) { return reshape(x, x.dim()); }

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
    std::vector<Gate> fiog;
    for (const char* k : {".0", ".1", ".2", ".3"}) {
      fiog.push_back({weight("b_" + arc + k), weight("W_" + arc + k), weight("U_" + arc + k)});
    }
    const bool fuses = fiog[0].b.dim()[0] <= most_fused;
    return std::unique_ptr<Cell>(fuses ? static_cast<Cell*>(new FusedCell(fiog))
                                       : new HoistedCell(fiog));
  }
};

const Registration<LatticeLSTM> lattice_lstm("lattice_lstm");

}  // namespace
