// A network in DyNet's C++ interface: parameters by name, and a graph built from arrays.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dynet/dynet.h"
#include "dynet/expr.h"
#include "dynet/lstm.h"
#include "dynet/model.h"
#include "dynet/training.h"

// Numbers of a mini-batch, such as the words of all its trees (systems/plans/columns.py).
struct Column {
  const std::int32_t* values;
  std::int64_t size;
};

using Clock = std::chrono::steady_clock;
using Expressions = std::vector<dynet::Expression>;

// DyNet's own LSTM, with the states before its first input: the cells of all layers, then the
// outputs; empty for zeros.
struct LSTM {
  dynet::VanillaLSTMBuilder builder;
  Expressions start;

  // Returns the outputs of a sequence.
  template <class Iterator>
  Expressions read(Iterator first, Iterator last) {
    builder.start_new_sequence(start);
    Expressions outputs;
    outputs.reserve(last - first);
    for (; first != last; ++first) outputs.push_back(builder.add_input(*first));
    return outputs;
  }
};

class Program {
 public:
  virtual ~Program() = default;

  // A weight matrix of (rows, columns), values column after column; a vector where columns is 0.
  void add_parameter(const std::string& name, unsigned rows, unsigned columns, const float* values);
  // Vectors to be looked up, one after the other.
  void add_table(const std::string& name, unsigned n, unsigned width, const float* values);
  // Plain SGD on all that was added: no clipping, only the looked-up rows of tables are updated.
  void add_trainer(float learning_rate);

  // Takes the place of the last graph with the mini-batch's, up to the end of its first segment.
  void construct(const std::vector<Column>& columns);
  // Adds the next segment, or the sum of the segments' losses; false if the graph is complete.
  bool extend();
  // Schedules and evaluates all that was added, and returns the newest loss. `scheduling` becomes
  // the fraction of the time that DyNet took before the first operator.
  float forward(double* scheduling);
  void backward();
  void update();

  // Forgets gradients that no update has used.
  void clear_gradients();
  // Values and gradients of one parameter or table, all numbers in the order of add_...
  void read_values(const std::string& name, float* out) const;
  void read_gradient(const std::string& name, float* out) const;
  // Scores of every vertex with a classifier, or states of roots, one vector after the other, of
  // the last forward pass.
  std::int64_t n_outputs() const;
  unsigned output_width() const { return outputs_.at(0).dim().rows(); }
  void read_outputs(float* out) const;

 protected:
  using Expression = dynet::Expression;

  // Builds the first segment of the mini-batch's graph; it may keep pointers into the columns.
  virtual void build(const std::vector<Column>& columns) = 0;
  virtual bool has_next() const { return false; }
  virtual void build_next() {}

  bool has_weight(const std::string& name) const { return parameters_.count(name) > 0; }
  bool has_table(const std::string& name) const { return tables_.count(name) > 0; }
  Expression weight(const std::string& name);
  Expression look_up(const dynet::LookupParameter& table, std::int32_t row);
  Expression look_up(const dynet::LookupParameter& table, const std::vector<unsigned>& rows);
  // Looks up a row after the other, and moves the pointer to the end.
  Expressions look_up_next(const dynet::LookupParameter& table, const std::int32_t*& rows,
                           std::int32_t n);
  dynet::LookupParameter table(const std::string& name) const { return tables_.at(name); }
  // Adds an LSTM to the graph, whose layers have the parameters W, U and b with these suffixes.
  void begin(LSTM& lstm, const std::vector<std::string>& suffixes);
  // Lists the suffixes of a stack: the name, then name_2, name_3, ... of its upper layers.
  std::vector<std::string> list_layers(const std::string& name) const;

  // One product with W_out, plus b_out if there is one, and one loss over all states of the
  // mini-batch.
  void classify(const Expressions& states, const std::vector<unsigned>& labels);
  void add_loss(const Expression& loss) { losses_.push_back(loss); }

  Expressions outputs_;  // vectors, or mini-batches of them, in the order of the instances

 private:
  void add_first_node();

  dynet::ParameterCollection collection_;
  std::map<std::string, dynet::Parameter> parameters_;
  std::map<std::string, dynet::LookupParameter> tables_;
  std::unique_ptr<dynet::SimpleSGDTrainer> trainer_;
  Expressions losses_;  // of all segments, or their sum
  Clock::time_point scheduled_;
};

// Programs by name. The file of a program adds it: const Registration<TreeLSTM> entry("tree_lstm").
using Maker = std::unique_ptr<Program> (*)();
std::map<std::string, Maker>& programs();

template <class Kind>
struct Registration {
  explicit Registration(const std::string& name) {
    programs()[name] = [] { return std::unique_ptr<Program>(new Kind); };
  }
};

inline std::vector<unsigned> as_labels(const Column& column) {
  return {column.values, column.values + column.size};
}
