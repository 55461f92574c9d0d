// Lattice-LSTM: the graph of systems/on_dynet/models/lattice_lstm.py, operator by operator.
#include "program.h"

using namespace dynet;

namespace {

class LatticeLSTM : public Program {
 private:
  struct State {
    Expression h, c;
  };
  struct Cell {
    Expression b_f, b_i, b_o, b_g, W_f, W_i, W_o, W_g, U_f, U_i, U_o, U_g;
  };

  void build(const std::vector<Column>& columns) override {
    const Column &sizes = columns.at(0), &tags = columns.at(1), &n_arcs = columns.at(2);
    const std::int32_t *sources = columns.at(3).values, *tokens = columns.at(4).values;
    const LookupParameter characters = table("characters"), words = table("words");
    const Cell char_cell = take_cell("char"), word_cell = take_cell("word");
    const State start{weight("h_0"), weight("c_0")};
    std::vector<State> states;
    states.reserve(tags.size);
    std::int64_t arc = 0;
    for (std::int64_t lattice = 0; lattice < sizes.size; ++lattice) {
      const std::size_t first = states.size();  // sources are numbered within their lattice
      states.push_back(start);
      for (std::int32_t k = 1; k < sizes.values[lattice]; ++k) {
        const std::int64_t end = arc + n_arcs.values[states.size()];
        Expressions h, c;
        for (const std::int64_t own = arc; arc < end; ++arc) {  // its character comes first
          const bool is_word = arc > own;
          const Expression x = look_up(is_word ? words : characters, tokens[arc]);
          const State found =
              step(is_word ? word_cell : char_cell, x, states[first + sources[arc]]);
          h.push_back(found.h);
          c.push_back(found.c);
        }
        states.push_back(h.size() == 1 ? State{h[0], c[0]} : State{sum(h), sum(c)});
      }
    }
    Expressions hidden;
    hidden.reserve(states.size());
    for (const State& state : states) hidden.push_back(state.h);
    classify(hidden, std::vector<unsigned>(tags.values, tags.values + tags.size));
  }

  Cell take_cell(const std::string& arc) {
    const std::string b = "b_" + arc, W = "W_" + arc, U = "U_" + arc;
    return {weight(b + ".0"), weight(b + ".1"), weight(b + ".2"), weight(b + ".3"),
            weight(W + ".0"), weight(W + ".1"), weight(W + ".2"), weight(W + ".3"),
            weight(U + ".0"), weight(U + ".1"), weight(U + ".2"), weight(U + ".3")};
  }

  static State step(const Cell& cell, const Expression& x, const State& before) {
    const Expression& h = before.h;
    const Expression f = logistic(affine_transform({cell.b_f, cell.W_f, x, cell.U_f, h}));
    const Expression i = logistic(affine_transform({cell.b_i, cell.W_i, x, cell.U_i, h}));
    const Expression o = logistic(affine_transform({cell.b_o, cell.W_o, x, cell.U_o, h}));
    const Expression g = tanh(affine_transform({cell.b_g, cell.W_g, x, cell.U_g, h}));
    const Expression c = cmult(i, g) + cmult(f, before.c);
    return {cmult(o, tanh(c)), c};
  }
};

}  // namespace

std::unique_ptr<Program> make_lattice_lstm() { return std::unique_ptr<Program>(new LatticeLSTM); }
