#include "models/exported/step_inputs.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>

#include <algorithm>

namespace gradus {
namespace {

using torch::Tensor;

/// The labels that count, as the loss counts them when it takes their mean.
Tensor count_items(const Tensor& labels, bool shifted) {
  return (shifted && labels.dim() > 1 ? labels.slice(-1, 1) : labels).ne(-100).sum();
}

/// The compiled step takes the layout of its example for granted.
Tensor usable(const Tensor& tensor) {
  auto result = tensor.contiguous();
  if (!result.is_cpu() && reinterpret_cast<uintptr_t>(result.data_ptr()) % 16 != 0)
    result = result.clone();
  return result;
}

}  // namespace

void StepInputs::add_weight(const Tensor& tensor, const ExportManifest::Weight& weight) {
  values_.push_back(usable(tensor.to(weight.dtype)));
}

void StepInputs::add_batch(const Batch& batch) {
  for (const auto& input : manifest_.inputs) {
    const auto* given = batch.find(input.name);
    if (given != nullptr && given->defined()) check_shape(input, *given);
  }
  for (const auto& input : manifest_.inputs) {
    const auto* given = batch.find(input.name);
    const bool is_given = given != nullptr && given->defined();
    if (!is_given && !input.fill) lack(input.name, batch);
    if (!is_given && input.is_label) lacks_labels_ = true;
    auto value = is_given ? *given : filled(input, batch);
    if (value.device() != device_) value = value.to(device_);
    values_.push_back(usable(value.to(input.dtype)));
    if (is_given) check_values(input, values_.back());
    if (input.name == "labels") labels_ = values_.back();
  }
}

void StepInputs::add_items(const std::optional<Tensor>& items) {
  const auto count = items ? *items : count_items(labels_, manifest_.shifts_labels);
  values_.push_back(usable(count.to(device_, at::kLong)));
}

void StepInputs::add_seed() {
  constexpr auto kSeeds = int64_t{1} << 62;  // the step adds to it
  values_.push_back(at::randint(kSeeds, {}, torch::dtype(torch::kLong).device(device_)));
}

void StepInputs::need_labels() const {
  if (!lacks_labels_) return;
  std::vector<std::string> labels;
  for (const auto& input : manifest_.inputs)
    if (input.is_label) labels.push_back(input.name);
  throw Error("G-EXPORT-4", ErrorKind::training,
              fmt::format("an exported model computes its loss itself: in training the batch must "
                          "hold its labels, {}",
                          fmt::join(labels, ", ")),
              "Losses computed from the logits (label smoothing, preferences, distillation) need a "
              "model that gradus has code for.");
}

Tensor StepInputs::filled(const ExportManifest::Input& input, const Batch& batch) const {
  std::vector<int64_t> sizes;
  for (const auto& size : input.shape) {
    const auto found = sizes_.find(size.name);
    if (!size.name.empty() && found == sizes_.end()) lack(input.name, batch);
    sizes.push_back(size.name.empty() ? size.fixed : found->second);
  }
  const auto value = c10::isFloatingType(input.dtype) ? std::max(*input.fill, 0.0) : *input.fill;
  return at::full(sizes, value, torch::dtype(input.dtype).device(device_));
}

void StepInputs::lack(const std::string& name, const Batch& batch) const {
  throw Error("G-EXPORT-4", ErrorKind::data,
              fmt::format("the exported model needs the input {}; the batch has {}", name,
                          fmt::join(batch.names(), ", ")),
              "Prepare the data for the task that the model was exported for.");
}

void StepInputs::check_shape(const ExportManifest::Input& input, const Tensor& given) {
  const auto received = fmt::format("[{}]", fmt::join(given.sizes(), ", "));
  if (given.dim() != int64_t(input.shape.size())) refuse_shape(input, received, "");
  for (size_t i = 0; i < input.shape.size(); ++i) {
    const auto& size = input.shape[i];
    const auto here = given.size(int64_t(i));
    if (size.name.empty()) {
      if (here != size.fixed) refuse_shape(input, received, "");
      continue;
    }
    const auto& bounds = manifest_.dims.at(size.name);
    if (here < bounds.least) refuse_shape(input, received, "");
    if (here > bounds.most)
      refuse_shape(input, received,
                   fmt::format("--max_{} {}", size.name == "batch" ? "batch" : "length", here));
    const auto [place, is_new] = sizes_.emplace(size.name, here);
    if (!is_new && place->second != here)
      throw Error("G-EXPORT-4", ErrorKind::data,
                  fmt::format("{} has {} as {}, other inputs of the batch have {}", input.name,
                              here, size.name, place->second),
                  "All inputs of a batch must have the same sizes.");
  }
}

void StepInputs::check_values(const ExportManifest::Input& input, const Tensor& given) const {
  if (!input.below || !given.is_cpu() || c10::isFloatingType(input.dtype)) return;
  const auto numbers = given.to(at::kLong);
  const auto* first = numbers.const_data_ptr<int64_t>();
  const auto* end = first + numbers.numel();
  const auto* wrong = std::find_if(first, end, [&](int64_t number) {
    return (number < 0 || number >= *input.below) && number != input.ignored;
  });
  if (wrong == end) return;
  const auto row = given.dim() == 0 ? 0 : (wrong - first) / (given.numel() / given.size(0));
  throw Error("G-EXPORT-4", ErrorKind::data,
              fmt::format("{} holds {} in row {} of the batch; the exported model takes 0 to {}{}",
                          input.name, *wrong, row, *input.below - 1,
                          input.ignored ? fmt::format(", and {} for none", *input.ignored) : ""),
              "The tokenizer or the labels of the data may not belong to the model.");
}

void StepInputs::refuse_shape(const ExportManifest::Input& input, const std::string& received,
                              const std::string& change) const {
  std::vector<std::string> expected;
  for (const auto& size : input.shape) {
    if (size.name.empty()) {
      expected.push_back(std::to_string(size.fixed));
      continue;
    }
    const auto& bounds = manifest_.dims.at(size.name);
    expected.push_back(fmt::format("{} from {} to {}", size.name, bounds.least, bounds.most));
  }
  throw Error("G-EXPORT-4", ErrorKind::data,
              fmt::format("the exported model takes {} of the shape [{}], received {}", input.name,
                          fmt::join(expected, ", "), received),
              change.empty()
                  ? "Change the sizes of the data, or export the model with an example like it:\n" +
                        manifest_.command_with("")
                  : "Export the model with a larger bound:\n" + manifest_.command_with(change));
}

}  // namespace gradus
