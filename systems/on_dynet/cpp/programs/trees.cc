// Binary trees: the graphs of systems/on_dynet/models/trees.py, operator by operator.
#include "program.h"

using namespace dynet;

namespace {

// Children before parents; a model has its own cells.
class Trees : public Program {
 protected:
  struct State {
    Expression h, c;
  };

  virtual void take_weights() = 0;
  virtual Expression look_up_word(std::int32_t word) { return look_up(embedding_, word); }
  virtual State leaf(const Expression& x) const = 0;
  virtual State internal(const State& first, const State& second) const = 0;
  // Adds scores and loss, from the outputs of all vertices.
  virtual void score(const Expressions& hidden, const Column&, const Column& labels) {
    classify(hidden, as_labels(labels));
  }

 private:
  void build(const std::vector<Column>& columns) override {
    const Column &sizes = columns.at(0), &words = columns.at(1);
    const std::int32_t *left = columns.at(3).values, *right = columns.at(4).values;
    if (has_table("embedding")) embedding_ = table("embedding");
    take_weights();
    std::vector<State> states;
    states.reserve(words.size);
    std::int64_t vertex = 0;
    for (std::int64_t tree = 0; tree < sizes.size; ++tree) {
      const std::int64_t first = vertex;  // children are numbered within their tree
      for (const std::int64_t end = first + sizes.values[tree]; vertex < end; ++vertex) {
        const std::int32_t word = words.values[vertex];
        states.push_back(word >= 0 ? leaf(look_up_word(word))
                                   : internal(states[first + left[vertex]],
                                              states[first + right[vertex]]));
      }
    }
    Expressions hidden;
    hidden.reserve(states.size());
    for (const State& state : states) hidden.push_back(state.h);
    score(hidden, sizes, columns.at(2));
  }

  LookupParameter embedding_;
};

class TreeLSTM : public Trees {
 private:
  void take_weights() override {
    W_i = weight("W.0"), W_o = weight("W.1"), W_u = weight("W.2");
    bl_i = weight("b_leaf.0"), bl_o = weight("b_leaf.1"), bl_u = weight("b_leaf.2");
    U_i = weight("U.0"), U_o = weight("U.1"), U_u = weight("U.2");
    b_i = weight("b.0"), b_o = weight("b.1"), b_u = weight("b.2");
    F_1 = weight("F_1"), F_2 = weight("F_2"), b_f = weight("b_f");
  }

  State leaf(const Expression& x) const override {
    const Expression c = cmult(logistic(affine_transform({bl_i, W_i, x})),
                               tanh(affine_transform({bl_u, W_u, x})));
    return {cmult(logistic(affine_transform({bl_o, W_o, x})), tanh(c)), c};
  }

  State internal(const State& first, const State& second) const override {
    const Expression both = concatenate({first.h, second.h});
    const Expression c =
        sum({cmult(logistic(affine_transform({b_i, U_i, both})),
                   tanh(affine_transform({b_u, U_u, both}))),
             cmult(logistic(affine_transform({b_f, F_1, first.h})), first.c),
             cmult(logistic(affine_transform({b_f, F_2, second.h})), second.c)});
    return {cmult(logistic(affine_transform({b_o, U_o, both})), tanh(c)), c};
  }

  Expression W_i, W_o, W_u, bl_i, bl_o, bl_u, U_i, U_o, U_u, b_i, b_o, b_u, F_1, F_2, b_f;
};

class TreeLSTMChildSum : public Trees {
 private:
  void take_weights() override {
    W_i = weight("W.0"), W_o = weight("W.1"), W_u = weight("W.2");
    U_i = weight("U.0"), U_o = weight("U.1"), U_u = weight("U.2");
    b_i = weight("b.0"), b_o = weight("b.1"), b_u = weight("b.2");
    U_f = weight("U_f"), b_f = weight("b_f");
  }

  State leaf(const Expression& x) const override {
    const Expression c = cmult(logistic(affine_transform({b_i, W_i, x})),
                               tanh(affine_transform({b_u, W_u, x})));
    return {cmult(logistic(affine_transform({b_o, W_o, x})), tanh(c)), c};
  }

  State internal(const State& first, const State& second) const override {
    const Expression both = first.h + second.h;
    const Expression c =
        sum({cmult(logistic(affine_transform({b_i, U_i, both})),
                   tanh(affine_transform({b_u, U_u, both}))),
             cmult(logistic(affine_transform({b_f, U_f, first.h})), first.c),
             cmult(logistic(affine_transform({b_f, U_f, second.h})), second.c)});
    return {cmult(logistic(affine_transform({b_o, U_o, both})), tanh(c)), c};
  }

  Expression W_i, W_o, W_u, U_i, U_o, U_u, b_i, b_o, b_u, U_f, b_f;
};

// Outputs and loss are those of the roots.
class TreeFC : public Trees {
 private:
  void take_weights() override {
    b = weight("b"), W_1 = weight("W.0"), W_2 = weight("W.1");
    if (!has_table("embedding")) zero = zeros(*b.pg, b.dim());
  }

  Expression look_up_word(std::int32_t word) override {
    return has_table("embedding") ? Trees::look_up_word(word) : compute_layer(zero, zero);
  }

  State leaf(const Expression& x) const override { return {x, {}}; }

  State internal(const State& first, const State& second) const override {
    return {compute_layer(first.h, second.h), {}};
  }

  Expression compute_layer(const Expression& first, const Expression& second) const {
    return rectify(affine_transform({b, W_1, first, W_2, second}));
  }

  void score(const Expressions& hidden, const Column& sizes, const Column&) override {
    Expressions losses;
    std::int64_t end = 0;
    for (std::int64_t tree = 0; tree < sizes.size; ++tree) {
      outputs_.push_back(hidden[(end += sizes.values[tree]) - 1]);
      losses.push_back(squared_norm(outputs_.back()));
    }
    add_loss(sum(losses) * 0.5f);
  }

  Expression b, W_1, W_2, zero;
};

const Registration<TreeLSTM> tree_lstm("tree_lstm");
const Registration<TreeLSTMChildSum> tree_lstm_child_sum("tree_lstm_child_sum");
const Registration<TreeFC> tree_fc("tree_fc");

}  // namespace
