#include "train/debug_underflow_overflow.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <cmath>
#include <unordered_map>

namespace gradus {
namespace {

constexpr size_t kFrames = 21;
constexpr const char* kIndent = "                 ";
constexpr const char* kHeader = "abs min  abs max  metadata";

// "gradus::layers::Linear", "torch::nn::LinearImpl": Linear.
std::string class_of(const torch::nn::Module& module) {
  auto name = module.name();
  if (const auto colons = name.rfind("::"); colons != std::string::npos)
    name = name.substr(colons + 2);
  return name.ends_with("Impl") ? name.substr(0, name.size() - 4) : name;
}

const void* storage_of(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl()
                                                  : nullptr;
}

void collect_tensors(const c10::IValue& value, std::vector<torch::Tensor>& tensors) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    const auto list = value.toTensorVector();
    tensors.insert(tensors.end(), list.begin(), list.end());
  }
}

// What the operation reads; not a tensor that is only the place for its result, which may hold
// anything.
std::vector<torch::Tensor> tensors_read(const at::RecordFunction& function) {
  std::vector<torch::Tensor> tensors;
  const auto schema = function.operator_schema();
  const auto inputs = function.inputs();
  for (size_t i = std::string_view(function.name()) == "aten::copy_" ? 1 : 0; i < inputs.size();
       ++i)
    if (!schema || i >= schema->arguments().size() || !schema->arguments()[i].is_out())
      collect_tensors(inputs[i], tensors);
  return tensors;
}

std::vector<torch::Tensor> tensors_made(const at::RecordFunction& function) {
  std::vector<torch::Tensor> tensors;
  for (const auto& value : function.outputs()) collect_tensors(value, tensors);
  return tensors;
}

}  // namespace

/// Sees every torch operation of this thread while it lives, and takes frames of those that read a
/// parameter.
class DebugUnderflowOverflow::Observer {
 public:
  static bool is_active() { return current_ != nullptr; }

  Observer(DebugUnderflowOverflow& debug, const Model& model) : debug_(debug) {
    current_ = this;
    for (const auto& item : model.named_module().named_modules("", /*include_self=*/true))
      for (const auto& parameter : item.value()->named_parameters(/*recurse=*/false))
        owners_.try_emplace(storage_of(parameter.value()), Owner{item.key(), item.value().get()});
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~Observer() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

 private:
  struct Owner {
    std::string name;
    const torch::nn::Module* module;
  };
  struct Operation : at::ObserverContext {
    explicit Operation(Owner of) : owner(std::move(of)) {}
    Owner owner;
    bool has_frame = false;  // else it makes a weight of weights
  };

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    auto* self = current_;
    if (self == nullptr || self->inside_ || !self->debug_.findings_.empty()) return nullptr;
    const auto tensors = tensors_read(function);
    const auto* owner = self->owner_of(tensors);
    if (owner == nullptr) return nullptr;
    self->inside_ = true;  // what it calls in turn is part of it
    auto operation = std::make_unique<Operation>(*owner);
    const at::DisableRecordFunctionGuard no_observer;
    const torch::NoGradGuard no_grad;
    operation->has_frame = self->begin_frame(*owner, tensors);
    return operation;
  }

  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    if (context == nullptr || current_ == nullptr) return;
    const at::DisableRecordFunctionGuard no_observer;
    const torch::NoGradGuard no_grad;
    current_->inside_ = false;
    current_->take(static_cast<const Operation&>(*context), tensors_made(function));
  }

  // What the operation reads, before it may write to it. False when that is weights alone.
  bool begin_frame(const Owner& owner, const std::vector<torch::Tensor>& tensors) {
    std::vector<torch::Tensor> inputs;
    for (const auto& tensor : tensors)
      if (!owners_.contains(storage_of(tensor))) inputs.push_back(tensor);
    if (inputs.empty()) return false;
    debug_.begin_frame(owner.name, *owner.module);
    debug_.add_parameters(*owner.module);
    for (size_t i = 0; i < inputs.size(); ++i)
      debug_.add_line(inputs[i], fmt::format("input[{}]", i));
    return true;
  }

  const Owner* owner_of(const std::vector<torch::Tensor>& tensors) const {
    for (const auto& tensor : tensors)
      if (const auto found = owners_.find(storage_of(tensor)); found != owners_.end())
        return &found->second;
    return nullptr;
  }

  void take(const Operation& operation, const std::vector<torch::Tensor>& outputs) {
    if (!operation.has_frame) {  // a view, a cast or the like: still the weight
      for (const auto& tensor : outputs)
        if (owners_.try_emplace(storage_of(tensor), operation.owner).second)
          derived_.push_back(tensor);
      return;
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      debug_.add_line(outputs[i],
                      outputs.size() == 1 ? std::string("output") : fmt::format("output[{}]", i));
    debug_.end_frame();
  }

  static thread_local Observer* current_;
  DebugUnderflowOverflow& debug_;
  at::CallbackHandle handle_;
  std::unordered_map<const void*, Owner>
      owners_;  // by the memory of a parameter, or of what was made of parameters alone
  std::vector<torch::Tensor> derived_;  // keeps the latter where they are
  bool inside_ = false;
};

thread_local DebugUnderflowOverflow::Observer* DebugUnderflowOverflow::Observer::current_ = nullptr;

ModelOutput DebugUnderflowOverflow::watch(const Model& model, const Batch& inputs,
                                          const std::function<ModelOutput()>& forward) {
  if (Observer::is_active()) return forward();
  batch_begins_ = true;
  ModelOutput outputs;
  try {
    const Observer observer(*this, model);
    outputs = forward();
  } catch (const std::exception&) {
    if (findings_.empty()) throw;
  }
  if (findings_.empty()) {
    const torch::NoGradGuard no_grad;
    begin_frame("", model);
    add_parameters(model);
    for (const auto& [name, value] : inputs) add_line(value, fmt::format("input[{}]", name));
    for (const auto& [name, value] : outputs) add_line(value, fmt::format("output[{}]", name));
    end_frame();
  }
  if (!findings_.empty()) report();
  ++batch_number_;
  return outputs;
}

void DebugUnderflowOverflow::begin_frame(const std::string& module_name,
                                         const torch::nn::Module& module) {
  frame_.clear();
  if (std::exchange(batch_begins_, false))
    frame_ = {fmt::format("\n\n{} *** Starting batch number={} ***", kIndent, batch_number_),
              kHeader};
  frame_.push_back(fmt::format("{} {} {}", kIndent, module_name, class_of(module)));
}

void DebugUnderflowOverflow::add_parameters(const torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters(/*recurse=*/false))
    add_line(parameter.value(), parameter.key());
}

void DebugUnderflowOverflow::add_line(const torch::Tensor& tensor, const std::string& what) {
  if (!tensor.defined() || tensor.numel() == 0) {
    frame_.push_back(fmt::format("{:>17} {}", "None", what));
    return;
  }
  const auto magnitude =
      tensor.scalar_type() == torch::kBool ? tensor.to(torch::kInt) : tensor.detach().abs();
  const auto least = magnitude.min().item<double>(),
             largest = magnitude.max().item<double>();  // nan where there is one, of either sign
  frame_.push_back(fmt::format("{:>8.2e} {:>8.2e} {}", std::fabs(least), std::fabs(largest), what));
  if (std::isnan(largest)) findings_.push_back(what + " has nans");
  if (!std::isfinite(largest) && magnitude.isinf().any().item<bool>())
    findings_.push_back(what + " has infs");
}

void DebugUnderflowOverflow::end_frame() {
  frames_.push_back(fmt::format("{}", fmt::join(std::exchange(frame_, {}), "\n")));
  if (frames_.size() > kFrames) frames_.pop_front();
}

void DebugUnderflowOverflow::report() const {
  log_print(fmt::format(
      "{}\n\nDetected inf/nan during batch_number={}\nLast {} forward frames:\n{}\n{}\n\n\n\n",
      fmt::join(findings_, "\n"), batch_number_, frames_.size(), kHeader,
      fmt::join(frames_, "\n")));
  throw Error("G-TRAIN-16", ErrorKind::training,
              fmt::format("DebugUnderflowOverflow: inf/nan detected ({}), aborting as there is no "
                          "point running further",
                          fmt::join(findings_, ", ")),
              "The frames printed above show the magnitudes of weights, inputs and outputs that "
              "led to it: look where they grow. A lower --learning_rate, --max_grad_norm, or "
              "--bf16 in place of --fp16 are the usual remedies.");
}

}  // namespace gradus
