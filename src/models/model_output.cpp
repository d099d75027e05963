#include <gradus/core/error.h>
#include <gradus/models/model_output.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradus {

const torch::Tensor* ModelOutput::find(std::string_view name) const {
  for (const auto& [key, value] : entries_)
    if (key == name) return &value;
  return nullptr;
}

const torch::Tensor& ModelOutput::operator[](std::string_view name) const {
  if (const auto* value = find(name)) return *value;
  const auto advice = name == "loss"
                          ? "A model returns a loss only when the batch holds labels: check "
                            "label_names and the collator."
                          : "Ask for one of these names, or let the model's forward set it.";
  throw Error("G-MODEL-1", ErrorKind::model,
              fmt::format("the model returned no output named \"{}\"; it returned {}", name,
                          empty() ? "nothing" : fmt::format("{}", fmt::join(names(), ", "))),
              advice);
}

const torch::Tensor& ModelOutput::operator[](size_t index) const {
  if (index < entries_.size()) return entries_[index].second;
  throw Error("G-MODEL-1", ErrorKind::model,
              fmt::format("the model returned no output at index {}; it returned {} ({})", index,
                          size(), fmt::join(names(), ", ")),
              "Indices start at 0; the loss comes first when there is one.");
}

void ModelOutput::set(std::string name, torch::Tensor value) {
  for (auto& [key, old] : entries_)
    if (key == name) {
      old = std::move(value);
      return;
    }
  entries_.emplace_back(std::move(name), std::move(value));
}

std::vector<std::string> ModelOutput::names() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : entries_) names.push_back(key);
  return names;
}

}  // namespace gradus
