// Functions that systems/native/library.py calls: plain C without exceptions; 0 means success.
#include <omp.h>

#include <exception>

#include "network.h"

namespace {

std::string message;

template <class Work>
int guard(const Work& work) {
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

}  // namespace

extern "C" {

struct Weight {
  const char* name;
  float* values;
  Index rows, columns;
};

const char* last_error() { return message.c_str(); }

int prepare(void* onednn_sgemm, void* openblas_sgemm, int n_threads) {
  return guard([&] {
    set_libraries(onednn_sgemm, openblas_sgemm);
    omp_set_num_threads(n_threads);
  });
}

int make_network(const char* model, const Weight* weights, Index n, int is_training,
                 Network** network) {
  return guard([&] {
    Weights given;
    for (Index k = 0; k < n; ++k) {
      const auto& [name, values, rows, columns] = weights[k];
      given[name] = {values, rows, columns, columns};
    }
    *network = factories().at(model)(given, is_training != 0).release();
  });
}

int construct(Network* network, const Column* columns, Index n) {
  return guard([&] {
    network->begin();
    network->construct(Columns(columns, columns + n));
  });
}

int forward(Network* network, double* loss) {
  return guard([&] { *loss = network->forward(); });
}

int backward(Network* network) {
  return guard([&] { network->backward(); });
}

int update(Network* network, float rate) {
  return guard([&] { network->update(rate); });
}

int read_values(const Network* network, const char* name, float* values) {
  return guard([&] { network->read_values(name, values); });
}

int read_gradient(const Network* network, const char* name, float* values) {
  return guard([&] { network->read_gradient(name, values); });
}

int n_outputs(const Network* network, Index* n) {
  return guard([&] { *n = network->n_outputs(); });
}

int read_outputs(Network* network, float* scores) {
  return guard([&] { network->read_outputs(scores); });
}
}
