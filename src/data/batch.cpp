#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/data/batch.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradus {
namespace {

auto position_of(std::vector<Batch::Entry>& entries, std::string_view name) {
  return std::find_if(entries.begin(), entries.end(),
                      [&](const auto& entry) { return entry.first == name; });
}

/// How often a tensor was written to, as far as torch counts it.
int64_t writes_to(const torch::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? tensor._version() : 0;
}

[[noreturn]] void throw_missing(const Batch& batch, std::string_view name) {
  const auto names = batch.names();
  throw Error("G-DATA-1", ErrorKind::data,
              fmt::format("the batch has no '{}'; it has {}", name,
                          names.empty() ? "no entries" : fmt::format("{}", fmt::join(names, ", "))),
              did_you_mean(name, names));
}

}  // namespace

Batch::Batch(std::initializer_list<Entry> entries) {
  entries_.reserve(entries.size());
  for (const auto& [name, value] : entries) set(name, value);
}

const torch::Tensor* Batch::find(std::string_view name) const {
  for (const auto& entry : entries_) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

const torch::Tensor& Batch::operator[](std::string_view name) const {
  if (const auto* value = find(name)) return *value;
  throw_missing(*this, name);
}

void Batch::set(std::string name, torch::Tensor value) {
  const auto place = position_of(entries_, name);
  if (place != entries_.end())
    place->second = std::move(value);
  else
    entries_.emplace_back(std::move(name), std::move(value));
}

torch::Tensor Batch::pop(std::string_view name) {
  auto value = pop_or_undefined(name);
  if (!value.defined()) throw_missing(*this, name);
  return value;
}

torch::Tensor Batch::pop_or_undefined(std::string_view name) {
  const auto place = position_of(entries_, name);
  if (place == entries_.end()) return {};
  auto value = std::move(place->second);
  entries_.erase(place);
  return value;
}

void Batch::remember_all_ones(std::string_view name) {
  const auto& tensor = (*this)[name];
  if (!known_all_ones(name)) all_ones_.push_back({std::string(name), tensor, writes_to(tensor)});
}

bool Batch::known_all_ones(std::string_view name) const {
  const auto* tensor = find(name);
  if (tensor == nullptr) return false;
  return std::any_of(all_ones_.begin(), all_ones_.end(), [&](const Note& note) {
    return note.name == name && note.tensor.is_same(*tensor) && note.version == writes_to(*tensor);
  });
}

Batch Batch::with_copies(std::vector<torch::Tensor> copies) const {
  TORCH_CHECK(copies.size() == entries_.size(), "one copy for each entry");
  Batch other;
  other.entries_.reserve(copies.size());
  for (size_t i = 0; i < copies.size(); ++i)
    other.entries_.emplace_back(entries_[i].first, std::move(copies[i]));
  for (const auto& note : all_ones_)
    if (known_all_ones(note.name)) other.remember_all_ones(note.name);
  return other;
}

std::vector<torch::Tensor> Batch::tensors() const {
  std::vector<torch::Tensor> tensors;
  tensors.reserve(entries_.size());
  for (const auto& [name, value] : entries_) tensors.push_back(value);
  return tensors;
}

Batch Batch::to(torch::Device device, bool non_blocking) const {
  auto moved = tensors();
  for (auto& value : moved)
    if (value.defined() && value.device() != device) value = value.to(device, non_blocking);
  return with_copies(std::move(moved));
}

Batch Batch::pin() const {
  auto pinned = tensors();
  for (auto& value : pinned)
    if (value.defined() && value.is_cpu()) value = value.pin_memory();
  return with_copies(std::move(pinned));
}

int64_t Batch::rows() const {
  for (const auto& [name, value] : entries_) {
    if (value.defined() && value.dim() > 0) return value.size(0);
  }
  return 0;
}

std::vector<std::string> Batch::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, value] : entries_) names.push_back(name);
  return names;
}

}  // namespace gradus
