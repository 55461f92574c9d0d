// What systems/on_dynet/cpp/library.py calls: plain C, no exceptions; 0 where all went well.
#include <cstring>
#include <exception>
#include <functional>

#include "dynet/init.h"
#include "program.h"

namespace {

std::string message;

int guarded(const std::function<void()>& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
    message = "unknown exception";
  }
  return 1;
}

std::unique_ptr<Program> make(const std::string& name) {
  const auto found = programs().find(name);
  if (found == programs().end()) throw std::invalid_argument("no program " + name);
  return found->second();
}

}  // namespace

extern "C" {

const char* last_error() { return message.c_str(); }

// memory: as in DyNet's --dynet-mem. autobatch: 0 off, 1 agenda, 2 depth. Later calls do nothing.
int start_dynet(const char* memory, unsigned seed, int autobatch) {
  static bool started = false;
  return guarded([&] {
    if (started) return;
    started = true;
    dynet::DynetParams params;
    params.mem_descriptor = memory;
    params.random_seed = seed;
    params.autobatch = autobatch;
    dynet::initialize(params);
  });
}

int make_program(const char* name, Program** program) {
  return guarded([&] { *program = make(name).release(); });
}

int add_parameter(Program* program, const char* name, unsigned rows, unsigned columns,
                  const float* values) {
  return guarded([&] { program->add_parameter(name, rows, columns, values); });
}

int add_table(Program* program, const char* name, unsigned n, unsigned width,
              const float* values) {
  return guarded([&] { program->add_table(name, n, width, values); });
}

int add_trainer(Program* program, float learning_rate) {
  return guarded([&] { program->add_trainer(learning_rate); });
}

int construct(Program* program, const Column* columns, unsigned n_columns) {
  return guarded([&] { program->construct({columns, columns + n_columns}); });
}

int extend(Program* program, int* extended) {
  return guarded([&] { *extended = program->extend(); });
}

int forward(Program* program, float* loss, double* scheduling) {
  return guarded([&] { *loss = program->forward(scheduling); });
}

int backward(Program* program) {
  return guarded([&] { program->backward(); });
}

int update(Program* program) {
  return guarded([&] { program->update(); });
}

int clear_gradients(Program* program) {
  return guarded([&] { program->clear_gradients(); });
}

int read_values(const Program* program, const char* name, float* out) {
  return guarded([&] { program->read_values(name, out); });
}

int read_gradient(const Program* program, const char* name, float* out) {
  return guarded([&] { program->read_gradient(name, out); });
}

int size_outputs(const Program* program, std::int64_t* n, unsigned* width) {
  return guarded([&] { *n = program->n_outputs(), *width = program->output_width(); });
}

int read_outputs(const Program* program, float* out) {
  return guarded([&] { program->read_outputs(out); });
}

}  // extern "C"
