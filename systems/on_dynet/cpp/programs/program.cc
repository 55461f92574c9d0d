#include "program.h"

#include <algorithm>

#include "dynet/param-init.h"

using namespace dynet;

namespace {

// DyNet has memory for one graph at a time, of all programs. The last is never destroyed: DyNet
// may be gone by then.
ComputationGraph* graph = nullptr;

// Tensors may be in the memory of a GPU.
void copy(const Tensor& tensor, float* out) {
  const std::vector<float> values = as_vector(tensor);
  std::copy(values.begin(), values.end(), out);
}

void set(Tensor& tensor, const float* values) {
  TensorTools::set_elements(tensor, std::vector<float>(values, values + tensor.d.size()));
}

}  // namespace

void Program::add_parameter(const std::string& name, unsigned rows, unsigned columns,
                            const float* values) {
  const Dim dim = columns == 0 ? Dim({rows}) : Dim({rows, columns});
  Parameter parameter = collection_.add_parameters(dim, ParameterInitConst(0.0f));
  set(*parameter.values(), values);
  parameters_[name] = parameter;
}

void Program::add_table(const std::string& name, unsigned n, unsigned width, const float* values) {
  LookupParameter table =
      collection_.add_lookup_parameters(n, Dim({width}), ParameterInitConst(0.0f));
  set(table.get_storage().all_values, values);
  tables_[name] = table;
}

void Program::add_trainer(float learning_rate) {
  trainer_.reset(new SimpleSGDTrainer(collection_, learning_rate));
  trainer_->clipping_enabled = false;
  trainer_->sparse_updates_enabled = true;
}

void Program::construct(const std::vector<Column>& columns) {
  delete graph;
  graph = new ComputationGraph();
  build(columns);
}

float Program::forward() { return as_scalar(graph->incremental_forward(loss_)); }

void Program::backward() { graph->backward(loss_); }

void Program::update() { trainer_->update(); }

void Program::clear_gradients() { collection_.reset_gradient(); }

void Program::read_values(const std::string& name, float* out) const {
  const auto found = parameters_.find(name);
  copy(found != parameters_.end() ? found->second.get_storage().values
                                  : table(name).get_storage().all_values,
       out);
}

void Program::read_gradient(const std::string& name, float* out) const {
  const auto found = parameters_.find(name);
  copy(found != parameters_.end() ? found->second.get_storage().g
                                  : table(name).get_storage().all_grads,
       out);
}

std::int64_t Program::n_outputs() const { return logits_.value().d.size(); }

void Program::read_outputs(float* out) const { copy(logits_.value(), out); }

Expression Program::weight(const std::string& name) {
  return parameter(*graph, parameters_.at(name));
}

Expression Program::look_up(const LookupParameter& table, std::int32_t row) {
  return lookup(*graph, table, static_cast<unsigned>(row));
}

void Program::classify(const Expressions& states, const std::vector<unsigned>& labels) {
  logits_ = weight("W_out") * concatenate_to_batch(states);
  loss_ = sum_batches(pickneglogsoftmax(logits_, labels));
}
