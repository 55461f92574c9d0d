// A network in DyNet's C++ interface: parameters by name, and a graph built from arrays.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dynet/dynet.h"
#include "dynet/expr.h"
#include "dynet/model.h"
#include "dynet/training.h"

// Numbers of a mini-batch, such as the words of all its trees (systems/on_dynet/cpp/arrays.py).
struct Column {
  const std::int32_t* values;
  std::int64_t size;
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

  // Takes the place of the last graph with one of the summed loss over the mini-batch.
  void construct(const std::vector<Column>& columns);
  float forward();
  void backward();
  void update();

  // Forgets gradients that no update has used.
  void clear_gradients();
  // Values and gradients of one parameter or table, all numbers in the order of add_...
  void read_values(const std::string& name, float* out) const;
  void read_gradient(const std::string& name, float* out) const;
  // Scores of every vertex with a classifier, one after the other, of the last forward pass.
  std::int64_t n_outputs() const;
  void read_outputs(float* out) const;

 protected:
  using Expression = dynet::Expression;
  using Expressions = std::vector<Expression>;

  virtual void build(const std::vector<Column>& columns) = 0;

  Expression weight(const std::string& name);
  Expression look_up(const dynet::LookupParameter& table, std::int32_t row);
  dynet::LookupParameter table(const std::string& name) const { return tables_.at(name); }
  // One product with W_out and one loss over all states of the mini-batch.
  void classify(const Expressions& states, const std::vector<unsigned>& labels);

 private:
  dynet::ParameterCollection collection_;
  std::map<std::string, dynet::Parameter> parameters_;
  std::map<std::string, dynet::LookupParameter> tables_;
  std::unique_ptr<dynet::SimpleSGDTrainer> trainer_;
  Expression logits_, loss_;
};

std::unique_ptr<Program> make_tree_lstm();
std::unique_ptr<Program> make_tree_lstm_child_sum();
std::unique_ptr<Program> make_lattice_lstm();
