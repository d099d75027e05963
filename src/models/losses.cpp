#include <gradus/core/error.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/layers/linear_cross_entropy.h>
#include <gradus/models/losses.h>

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradus {

using torch::Tensor;

namespace {

/// Labels on the CPU are looked at before torch is: its own message names no values.
void check_labels(const Tensor& labels, int64_t classes, int64_t ignore_index) {
  if (!labels.is_cpu() || labels.numel() == 0) return;
  const auto used = labels.masked_select(labels.ne(ignore_index));
  if (used.numel() == 0) return;
  const auto [lowest, highest] = used.aminmax();
  const auto low = lowest.item<int64_t>(), high = highest.item<int64_t>();
  if (low >= 0 && high < classes) return;
  throw Error("G-MODEL-10", ErrorKind::model,
              fmt::format("labels hold {}, but the model has {} classes (0 to {})",
                          low < 0 ? low : high, classes, classes - 1),
              "Use -100 where there is no label, and give the model as many classes as the data "
              "has (num_labels).");
}

void check_rows(const Tensor& logits, const Tensor& labels) {
  const auto positions = logits.numel() / std::max<int64_t>(logits.size(-1), 1);
  if (labels.numel() == positions) return;
  throw Error(
      "G-MODEL-10", ErrorKind::model,
      fmt::format("labels have shape [{}], but the model returned predictions of shape [{}]",
                  fmt::join(labels.sizes(), ", "), fmt::join(logits.sizes(), ", ")),
      "There must be one label for each prediction.");
}

}  // namespace

Tensor token_loss(const Tensor& logits, const Tensor& labels,
                  const std::optional<Tensor>& num_items, int64_t ignore_index) {
  check_rows(logits, labels);
  const auto classes = logits.size(-1);
  const auto targets = labels.reshape({-1}).to(logits.device());
  check_labels(targets, classes, ignore_index);
  const auto rows = logits.reshape({-1, classes}).to(torch::kFloat);
  const auto reduction = num_items ? at::Reduction::Sum : at::Reduction::Mean;
  const auto loss = at::cross_entropy_loss(rows, targets, {}, reduction, ignore_index);
  return num_items ? loss / num_items->to(loss.device()) : loss;
}

Tensor shifted_labels(const Tensor& labels) {
  const auto tokens = labels.size(-1);
  return at::constant_pad_nd(labels.narrow(-1, 1, tokens - 1), {0, 1}, -100);
}

Tensor lm_head_loss(const layers::Linear& head, const Tensor& hidden, const Tensor& logits,
                    const Tensor& labels, const std::optional<Tensor>& num_items,
                    const Tensor& bias) {
  if (logits.defined()) return token_loss(logits, labels, num_items);
  if (head.adapter || (bias.defined() && head.bias.defined())) {
    const auto made = head.forward(hidden);
    return token_loss(bias.defined() ? made + bias : made, labels, num_items);
  }
  const auto rows = hidden.reshape({-1, hidden.size(-1)});
  check_rows(rows, labels);
  return layers::linear_cross_entropy(rows, head.weight,
                                      bias.defined() ? bias.reshape({-1}) : head.bias,
                                      labels.reshape({-1}), num_items);
}

std::optional<std::string> problem_type_in(const nlohmann::json& config) {
  const ConfigReader read(config);
  const auto problem = read.optional_text("problem_type");
  if (!problem) return problem;
  if (*problem != "regression" && *problem != "single_label_classification" &&
      *problem != "multi_label_classification")
    read.fail("problem_type",
              "regression, single_label_classification or multi_label_classification",
              '"' + *problem + '"');
  if (*problem == "single_label_classification" && num_labels(config) == 1)
    read.fail(
        "num_labels",
        "more than 1 for single_label_classification (two classes are 2, a number is regression)",
        "1");
  return problem;
}

std::string problem_type_of(int64_t classes, const Tensor& labels) {
  if (classes == 1) return "regression";
  const auto kind = labels.scalar_type();
  return kind == torch::kLong || kind == torch::kInt ? "single_label_classification"
                                                     : "multi_label_classification";
}

Tensor sequence_classification_loss(const Tensor& logits, const Tensor& labels,
                                    const std::optional<std::string>& problem_type,
                                    const std::optional<Tensor>& num_items) {
  if (logits.scalar_type() == torch::kBFloat16 || logits.scalar_type() == torch::kHalf)
    return sequence_classification_loss(logits.to(torch::kFloat), labels, problem_type, num_items);
  const auto classes = logits.size(-1);
  const auto problem = problem_type ? *problem_type : problem_type_of(classes, labels);
  const auto targets = labels.to(logits.device());
  if (problem == "single_label_classification") return token_loss(logits, targets, num_items);
  if (problem == "regression") {
    check_rows(classes == 1 ? logits : logits.reshape({-1, 1}), targets);
    const auto wanted = targets.to(logits.scalar_type());
    return classes == 1 ? at::mse_loss(logits.squeeze(), wanted.squeeze())
                        : at::mse_loss(logits, wanted);
  }
  if (problem == "multi_label_classification") {
    check_rows(logits.reshape({-1, 1}), targets);
    return at::binary_cross_entropy_with_logits(logits, targets.to(logits.scalar_type()));
  }
  throw Error(
      "G-MODEL-5", ErrorKind::model,
      fmt::format("config.json: problem_type must be regression, single_label_classification or "
                  "multi_label_classification, received \"{}\"",
                  problem),
      "Correct the value in the model's config.json.");
}

Tensor span_loss(const Tensor& start_logits, const Tensor& end_logits,
                 const Tensor& start_positions, const Tensor& end_positions,
                 const std::optional<Tensor>& num_items) {
  const auto outside = start_logits.size(1);  // positions beyond the tokens do not count
  const auto one = [&](const Tensor& logits, const Tensor& positions) {
    const auto flat = positions.dim() > 1 ? positions.squeeze(-1) : positions;
    return token_loss(logits, flat.clamp(0, outside), num_items, outside);
  };
  return (one(start_logits, start_positions) + one(end_logits, end_positions)) / 2;
}

}  // namespace gradus
