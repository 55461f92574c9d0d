// Products of computed matrices batch by their sizes, not by the node of the left factor.
//
// DyNet 2.1.2 tells matrix products apart by the node of their left factor: right where that is a
// parameter, but in MV-RNN every vertex has a matrix of its own, and each product is a batch of its
// own. ACRoBat (Fegade et al., MLSys 2024, Table 8, "DN++") compares with DyNet so changed. Loaded
// before DyNet, these two functions take the place of its own.
#include "dynet/dynet.h"
#include "dynet/nodes-matrixmultiply.h"
#include "dynet/param-nodes.h"
#include "dynet/sig.h"

namespace {

bool was_called = false;

bool is_parameter(const dynet::Node* node) {
  return dynamic_cast<const dynet::ParameterNode*>(node) != nullptr ||
         dynamic_cast<const dynet::ConstParameterNode*>(node) != nullptr;
}

}  // namespace

namespace dynet {

int MatrixMultiply::autobatch_sig(const ComputationGraph& graph, SigMap& signatures) const {
  was_called = true;
  if (dim.bd != 1) return 0;
  Sig signature(nt::matmul);
  const Node* left = graph.nodes[args[0]];
  if (is_parameter(left)) {
    signature.add_node(args[0]);
  } else {
    signature.add_dim(left->dim);
  }
  signature.add_dim(graph.nodes[args[1]]->dim);
  return signatures.get_idx(signature);
}

std::vector<int> MatrixMultiply::autobatch_concat(const ComputationGraph& graph) const {
  if (dim.bd != 1) return {0, 0};
  return {is_parameter(graph.nodes[args[0]]) ? 0 : 1, 1};
}

}  // namespace dynet

// Did DyNet use these functions?
extern "C" int product_signature_in_force() { return was_called; }
