#include "models/adapters/lora_layer.h"

#include <gradus/core/error.h>
#include <gradus/kernels/nf4.h>
#include <gradus/models/layers/module_path.h>
#include <gradus/models/layers/no_dropout.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <torch/nn/init.h>

#include <cmath>

namespace gradus {

using torch::Tensor;

namespace {

/// A matrix with the values that torch's own Linear draws for it.
std::shared_ptr<layers::Linear> drawn_linear(int64_t in, int64_t out, bool with_bias) {
  auto linear = std::make_shared<layers::Linear>(in, out, with_bias);
  torch::nn::init::kaiming_uniform_(linear->weight, std::sqrt(5.0));
  if (with_bias) {
    const auto bound = 1.0 / std::sqrt(double(in));
    torch::nn::init::uniform_(linear->bias, -bound, bound);
  }
  return linear;
}

void refuse_quantized(const Tensor& weight, const std::string& what) {
  if (kernels::Nf4Weight::is_one(weight))
    throw Error("G-PEFT-6", ErrorKind::usage,
                what + " reads and changes the layer's weights, which are in 4 bits",
                "Load the model without 4 bits for it.");
}

torch::nn::Module* child_of(torch::nn::Module& module, const std::string& name) {
  const auto children = module.named_children();
  const auto* child = children.find(name);
  return child != nullptr ? child->get() : nullptr;
}

/// Registers `child` as "kind.name" below `layer`, in place of an earlier one.
void register_part(torch::nn::Module& layer, const std::string& kind, const std::string& name,
                   const std::shared_ptr<torch::nn::Module>& child) {
  if (auto* group = child_of(layer, kind); group != nullptr && child_of(*group, name) != nullptr)
    group->unregister_module(name);
  layers::register_at(layer, kind + "." + name, child);
}

/// The matrices A or B of a table of embeddings, each under the name of its adapter.
class TableMatrices : public torch::nn::Module {
 public:
  void put(const std::string& name, const Tensor& matrix) {
    if (parameters_.contains(name))
      parameters_[name] = matrix;
    else
      register_parameter(name, matrix);
  }
};

void register_table_matrix(torch::nn::Module& layer, const std::string& kind,
                           const std::string& name, const Tensor& matrix) {
  if (child_of(layer, kind) == nullptr)
    layer.register_module(kind, std::make_shared<TableMatrices>());
  dynamic_cast<TableMatrices&>(*child_of(layer, kind)).put(name, matrix);
}

}  // namespace

LoraLayer::LoraLayer(torch::nn::Module& layer, Tensor& weight, Tensor* bias, bool transposed,
                     std::shared_ptr<layers::LayerAdapter>& place)
    : layer_(layer),
      table_(dynamic_cast<layers::Embedding*>(&layer)),
      weight_(weight),
      bias_(bias != nullptr ? bias : &no_bias_),
      transposed_(transposed),
      place_(place) {}

std::shared_ptr<LoraLayer> LoraLayer::of(torch::nn::Module& layer) {
  const auto taken = [&](auto& typed, Tensor* bias, bool transposed) {
    if (!typed.adapter)
      typed.adapter = std::shared_ptr<LoraLayer>(
          new LoraLayer(layer, typed.weight, bias, transposed, typed.adapter));
    return std::dynamic_pointer_cast<LoraLayer>(typed.adapter);
  };
  if (auto* linear = dynamic_cast<layers::Linear*>(&layer))
    return taken(*linear, &linear->bias, false);
  if (auto* conv = dynamic_cast<layers::Conv1D*>(&layer)) return taken(*conv, &conv->bias, true);
  if (auto* table = dynamic_cast<layers::Embedding*>(&layer)) return taken(*table, nullptr, true);
  return nullptr;
}

void LoraLayer::add(const std::string& name, const LoraConfig& config, int64_t rank, double alpha) {
  if (config.use_dora || config.init_lora_weights == "pissa")
    refuse_quantized(weight_, config.use_dora ? "use_dora" : "init_lora_weights=pissa");
  const torch::NoGradGuard no_grad;
  const auto matrix = out_in(weight_);
  Part part;
  part.own_scaling = alpha / (config.use_rslora ? std::sqrt(double(rank)) : double(rank));
  part.scaling = part.own_scaling;
  part.dropout = config.lora_dropout;
  if (is_table()) {
    part.a = std::make_shared<layers::Linear>(matrix.size(1), rank, false);
    part.b = std::make_shared<layers::Linear>(rank, matrix.size(0), false);
    init_table(part, config);
  } else {
    part.a = drawn_linear(matrix.size(1), rank, false);
    part.b = drawn_linear(rank, matrix.size(0), config.lora_bias);
    init(part, config, rank);
  }
  // Half precision would lose small updates: peft keeps adapters in float32, too.
  part.a->to(weight_.device());
  part.b->to(weight_.device());
  if (is_table()) {
    register_table_matrix(layer_, "lora_embedding_A", name, part.a->weight);
    register_table_matrix(layer_, "lora_embedding_B", name, part.b->weight);
  } else {
    register_part(layer_, "lora_A", name, part.a);
    register_part(layer_, "lora_B", name, part.b);
  }
  if (config.use_dora) {
    auto holder = std::make_shared<torch::nn::Module>();
    part.magnitude =
        holder->register_parameter("weight", weight_norm(delta(part)).to(torch::kFloat));
    register_part(layer_, "lora_magnitude_vector", name, holder);
  }
  parts[name] = std::move(part);
}

void LoraLayer::init(Part& part, const LoraConfig& config, int64_t rank) const {
  const auto& how = config.init_lora_weights;
  if (how == "true") torch::nn::init::kaiming_uniform_(part.a->weight, std::sqrt(5.0));
  if (how == "gaussian") torch::nn::init::normal_(part.a->weight, 0.0, 1.0 / double(rank));
  if (how == "true" || how == "gaussian") {
    torch::nn::init::zeros_(part.b->weight);
    if (part.b->bias.defined()) torch::nn::init::zeros_(part.b->bias);
  }
  if (how != "pissa") return;
  const auto matrix = out_in(weight_).to(torch::kFloat);
  const auto [u, values, v] = at::linalg_svd(matrix, /*full_matrices=*/false);
  const auto root = (values.narrow(0, 0, rank) / part.scaling).sqrt();
  part.a->weight.copy_(torch::diag(root).mm(v.narrow(0, 0, rank)));
  part.b->weight.copy_(u.narrow(1, 0, rank).mm(torch::diag(root)));
  const auto rest = matrix - part.scaling * part.b->weight.mm(part.a->weight).to(matrix.device());
  weight_.copy_(out_in(rest));
}

void LoraLayer::init_table(Part& part, const LoraConfig& config) const {
  for (const auto& matrix : {part.a->weight, part.b->weight}) torch::nn::init::normal_(matrix);
  if (config.init_lora_weights == "false") return;
  torch::nn::init::zeros_(part.a->weight);
  torch::nn::init::normal_(part.b->weight);
}

Tensor LoraLayer::delta(const Part& part) const {
  return part.b->weight.mm(part.a->weight) * part.scaling;
}

Tensor LoraLayer::weight_norm(const Tensor& delta) const {
  const auto whole = out_in(weight_.detach()) + delta.detach();
  return at::linalg_vector_norm(whole, 2, at::IntArrayRef{1}, false).to(weight_.scalar_type());
}

Tensor LoraLayer::with_dora(const Part& part, const Tensor& x, const Tensor& y) const {
  const auto factor = part.magnitude / weight_norm(delta(part));
  auto given = x, base = y;
  if (part.dropout > 0 && layer_.is_training()) {
    given = layers::dropout(x, part.dropout, true);
    base = at::linear(given, out_in(weight_).to(x.scalar_type()));
  } else if (bias_->defined()) {
    base = y - *bias_;
  }
  const auto low = part.b->forward(part.a->forward(given));
  return y + (factor - 1) * base + factor * low * part.scaling;
}

Tensor LoraLayer::table_forward(const Part& part, const Tensor& ids, const Tensor& y) const {
  const auto rows = at::embedding(part.a->weight.t(), ids, table_->padding_index.value_or(-1));
  const auto low = rows.matmul(part.b->weight.t());
  if (!part.magnitude.defined()) return y + low * part.scaling;
  const auto factor = part.magnitude / weight_norm(delta(part));
  return factor * y + factor * low * part.scaling;
}

bool LoraLayer::draws() const {
  const auto found = parts.find(active);
  return enabled && found != parts.end() && merged_.empty() && found->second.dropout > 0 &&
         layer_.is_training() && !layers::NoDropout::is_on();
}

std::optional<kernels::LowRank> LoraLayer::low_rank() const {
  const auto found = parts.find(active);
  if (!enabled || found == parts.end() || !merged_.empty()) return kernels::LowRank();
  const auto& part = found->second;
  if (draws() || is_table() || part.magnitude.defined() || part.b->bias.defined())
    return std::nullopt;
  return kernels::LowRank{part.a->weight, part.b->weight, part.scaling};
}

Tensor LoraLayer::forward(const Tensor& x, const Tensor& y) const {
  const auto found = parts.find(active);
  if (!enabled || found == parts.end() || !merged_.empty()) return y;
  const auto& part = found->second;
  if (is_table()) return table_forward(part, x, y).to(y.scalar_type());
  const auto given = x.to(part.a->weight.scalar_type());
  if (part.magnitude.defined()) return with_dora(part, given, y).to(y.scalar_type());
  const auto dropped = layers::dropout(given, part.dropout, layer_.is_training());
  const auto low = part.b->forward(part.a->forward(dropped));
  return (y + low * part.scaling).to(y.scalar_type());
}

void LoraLayer::set_scale(const std::string& name, double scale) {
  const auto found = parts.find(name);
  if (found != parts.end()) found->second.scaling = scale * found->second.own_scaling;
}

void LoraLayer::merge(const std::string& name) {
  const auto found = parts.find(name);
  if (found == parts.end() || !merged_.empty()) return;
  refuse_quantized(weight_, "merging the adapter");
  const torch::NoGradGuard no_grad;
  const auto& part = found->second;
  const auto change = delta(part);
  if (part.magnitude.defined()) {
    merged_factor_ = (part.magnitude / weight_norm(change)).unsqueeze(1);
    weight_.copy_(out_in(merged_factor_ * (out_in(weight_) + change)));
  } else {
    weight_.add_(out_in(change));
  }
  if (part.b->bias.defined()) bias_->add_(part.b->bias * part.scaling);
  merged_ = name;
}

void LoraLayer::unmerge() {
  if (merged_.empty()) return;
  const torch::NoGradGuard no_grad;
  const auto& part = parts.at(merged_);
  const auto change = delta(part);
  if (part.magnitude.defined())
    weight_.copy_(out_in(out_in(weight_) / merged_factor_ - change));
  else
    weight_.sub_(out_in(change));
  if (part.b->bias.defined()) bias_->sub_(part.b->bias * part.scaling);
  merged_.clear();
}

void LoraLayer::remove() {
  for (const char* kind :
       {"lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector"})
    if (child_of(layer_, kind) != nullptr) layer_.unregister_module(kind);
  parts.clear();
  place_.reset();  // this object may be gone now
}

}  // namespace gradus
