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

Batch Batch::to(torch::Device device, bool non_blocking) const {
  Batch moved = *this;
  for (auto& [name, value] : moved.entries_) {
    if (value.defined() && value.device() != device) value = value.to(device, non_blocking);
  }
  return moved;
}

Batch Batch::pin() const {
  Batch pinned = *this;
  for (auto& [name, value] : pinned.entries_) {
    if (value.defined() && value.is_cpu()) value = value.pin_memory();
  }
  return pinned;
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
