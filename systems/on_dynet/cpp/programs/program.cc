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

// The first node of a graph segment. It is also evaluated first, whichever way DyNet batches: it
// reads no other node, and it is never batched. Thus it sees when DyNet's scheduling has ended.
class FirstNode : public Node {
 public:
  FirstNode(const std::initializer_list<VariableIndex>& none, Clock::time_point* reached)
      : Node(none), reached_(reached) {}

  Dim dim_forward(const std::vector<Dim>&) const override { return Dim({1}); }
  std::string as_string(const std::vector<std::string>&) const override { return "first"; }
  void forward_impl(const std::vector<const Tensor*>&, Tensor&) const override {
    *reached_ = Clock::now();
  }
  void backward_impl(const std::vector<const Tensor*>&, const Tensor&, const Tensor&, unsigned,
                     Tensor&) const override {}

 private:
  Clock::time_point* reached_;
};

}  // namespace

std::map<std::string, Maker>& programs() {
  static std::map<std::string, Maker> all;
  return all;
}

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
  outputs_.clear();
  losses_.clear();
  add_first_node();
  build(columns);
}

bool Program::extend() {
  const bool continues = has_next();
  if (!continues && losses_.size() == 1) return false;
  add_first_node();
  if (continues) {
    build_next();
  } else {
    losses_ = {sum(losses_)};
  }
  return true;
}

float Program::forward(double* scheduling) {
  const Clock::time_point began = Clock::now();
  const float loss = as_scalar(graph->incremental_forward(losses_.back()));
  const std::chrono::duration<double> scheduled = scheduled_ - began, whole = Clock::now() - began;
  *scheduling = scheduled / whole;
  return loss;
}

void Program::backward() { graph->backward(losses_.back()); }

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

std::int64_t Program::n_outputs() const {
  std::int64_t n = 0;
  for (const Expression& output : outputs_) n += output.dim().batch_elems();
  return n;
}

void Program::read_outputs(float* out) const {
  for (const Expression& output : outputs_) {
    copy(output.value(), out);
    out += output.dim().size();
  }
}

Expression Program::weight(const std::string& name) {
  return parameter(*graph, parameters_.at(name));
}

Expression Program::look_up(const LookupParameter& table, std::int32_t row) {
  return lookup(*graph, table, static_cast<unsigned>(row));
}

Expression Program::look_up(const LookupParameter& table, const std::vector<unsigned>& rows) {
  return lookup(*graph, table, rows);
}

Expressions Program::look_up_next(const LookupParameter& table, const std::int32_t*& rows,
                                  std::int32_t n) {
  Expressions vectors;
  vectors.reserve(n);
  for (const std::int32_t* end = rows + n; rows < end; ++rows) {
    vectors.push_back(look_up(table, *rows));
  }
  return vectors;
}

void Program::begin(LSTM& lstm, const std::vector<std::string>& suffixes) {
  VanillaLSTMBuilder& builder = lstm.builder;
  builder.params.clear();
  for (const std::string& suffix : suffixes) {
    builder.params.push_back({parameters_.at("W" + suffix), parameters_.at("U" + suffix),
                              parameters_.at("b" + suffix)});
  }
  builder.layers = suffixes.size();
  builder.hid = builder.params[0][1].dim()[1];
  builder.forget_bias = 0.0f;  // DyNet would add 1, which our biases have in them already
  builder.disable_dropout();
  builder.new_graph(*graph);
}

std::vector<std::string> Program::list_layers(const std::string& name) const {
  std::vector<std::string> suffixes{name};
  for (unsigned layer = 2; has_weight("U" + name + "_" + std::to_string(layer)); ++layer) {
    suffixes.push_back(name + "_" + std::to_string(layer));
  }
  return suffixes;
}

void Program::classify(const Expressions& states, const std::vector<unsigned>& labels) {
  const Expression W_out = weight("W_out"), hidden = concatenate_to_batch(states);
  const Expression logits = has_weight("b_out")
                                ? affine_transform({weight("b_out"), W_out, hidden})
                                : W_out * hidden;
  outputs_ = {logits};
  add_loss(sum_batches(pickneglogsoftmax(logits, labels)));
}

void Program::add_first_node() { graph->add_function<FirstNode>({}, &scheduled_); }
