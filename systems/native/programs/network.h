// Base of all networks: parameters, lookup tables, and the classifier with its loss.
#pragma once

#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "packed.h"

struct Column {
  const std::int32_t* values;
  Index size;
};

using Columns = std::vector<Column>;
using Weights = std::map<std::string, Matrix>;  // initial values by the model's names

// A weight matrix or, with one row, a vector, and its gradient.
class Parameter {
 public:
  Parameter(const Matrix& initial, bool is_trained)
      : values(values_memory_.take(initial.rows, initial.columns)),
        gradient(gradient_memory_.take(initial.rows, initial.columns)),
        is_trained_(is_trained) {
    copy(initial, values);
  }

  // c = a W, plus `row` in every row; or c += a W.
  void multiply(const Matrix& a, const Matrix& c, const float* row = nullptr);
  void add_product(const Matrix& a, const Matrix& c);
  // As `multiply`, once in a mini-batch. In training, W is not packed: each update changes it.
  void multiply_once(const Matrix& a, const Matrix& c, const float* row);
  // c = a W^T, or c += a W^T.
  void multiply_transposed(const Matrix& a, const Matrix& c);
  void add_transposed(const Matrix& a, const Matrix& c);
  void update(float rate);

 private:
  struct Packed {
    PackedMatrix matrix;
    bool is_valid = false;
  };
  const PackedMatrix& pack(Packed& packed, bool transposed);
  void start_and_multiply(const Matrix& a, const Matrix& c, const float* row);  // by the library

  Buffer values_memory_, gradient_memory_;
  Packed packed_, transposed_;  // made when needed, and again after an update

 public:
  const Matrix values, gradient;

 private:
  const bool is_trained_;
};

// Lookup table, whose gradient has a row for every lookup.
class Table {
 public:
  explicit Table(const Matrix& values);

  const Matrix& values() const { return values_; }
  void look_up(const std::int32_t* ids, const Matrix& x) const { gather_rows(values_, ids, x); }
  void clear_gradient() { lookups_.clear(); }
  // Both arguments must stay valid until the next mini-batch.
  void add_gradient(const Ids& ids, const Matrix& dx) { lookups_.push_back({&ids, dx}); }
  void update(float rate);
  void read_gradient(float* dense) const;

 private:
  struct Lookup {
    const Ids* ids;
    Matrix dx;
  };
  Buffer memory_;
  Matrix values_;
  std::vector<Lookup> lookups_;
};

class Network {
 public:
  Network(const Weights& weights, bool is_training) : trains_(is_training), weights_(weights) {}
  virtual ~Network() = default;

  virtual void construct(const Columns& columns) = 0;  // plans a mini-batch
  virtual double forward() = 0;                        // returns the summed loss
  virtual void backward() = 0;                         // writes all gradients
  virtual Index n_outputs() const = 0;
  // Computes the scores again, in the order of the model's outputs.
  virtual void read_outputs(float* scores) = 0;

  void begin();  // forgets the last mini-batch
  void update(float rate);
  void read_values(const std::string& name, float* values) const;
  void read_gradient(const std::string& name, float* values) const;

  // For networks and their layers, while they are made.
  bool has(const std::string& name) const { return weights_.count(name) > 0; }
  Parameter& take(const std::string& name);
  Table& take_table(const std::string& name);

  bool trains() const { return trains_; }

 private:
  const bool trains_;
  Weights weights_;  // valid only while the network is made
  std::map<std::string, Parameter> parameters_;
  std::map<std::string, Table> tables_;
};

// Scores h W_out (+ b_out) of n rows, and the negative log likelihoods of their labels.
class Classifier {
 public:
  explicit Classifier(Network& network);

  // Computes all rows. Both arguments must stay valid until the next mini-batch.
  double forward(const Matrix& h, const Ids& labels);
  // Computes some rows at a time: `begin`, then `compute` for every row once.
  void begin(const Matrix& h, const Ids& labels, Index n_most);
  double compute(Index first, Index n);
  void backward(const Matrix& dh);  // writes dh and the gradients of the weights
  Index size() const { return h_.rows * W_.values.columns; }
  void read(const Ids& places, float* scores) const;  // scores of row r go to places[r]

 private:
  Network& network_;
  Parameter &W_, *b_;
  Buffer scores_memory_;
  Matrix h_, scores_;  // in training, scores_ gets the gradient of all scores
  const Ids* labels_ = nullptr;
};

// Registers a network by the name of its model.
using Factory = std::function<std::unique_ptr<Network>(const Weights&, bool)>;
std::map<std::string, Factory>& factories();

template <class N>
struct Registration {
  explicit Registration(const char* model) {
    factories()[model] = [](const Weights& weights, bool is_training) {
      return std::make_unique<N>(weights, is_training);
    };
  }
};
