#include <c10/util/Type.h>
#include <gradus/core/error.h>
#include <gradus/hooks/hook.h>
#include <gradus/hooks/operations.h>
#include <gradus/hooks/trainer.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/type_name.h"

namespace gradus::hooks {
namespace {

struct PointEntry {
  std::string_view name;
  void (Hook::*function)(Trainer&);
};

constexpr std::array<PointEntry, kPointCount> kPoints = {{
    {"before_fit", &Hook::before_fit},
    {"before_epoch", &Hook::before_epoch},
    {"before_step", &Hook::before_step},
    {"after_pred", &Hook::after_pred},
    {"after_loss", &Hook::after_loss},
    {"after_backward", &Hook::after_backward},
    {"after_step", &Hook::after_step},
    {"before_valid", &Hook::before_valid},
    {"after_epoch", &Hook::after_epoch},
    {"after_fit", &Hook::after_fit},
    {"after_cancel", &Hook::after_cancel},
}};

std::string hook_text(const Hook& hook) {
  return fmt::format("{} (ord {})", hook.name(), hook.ord);
}

}  // namespace

std::string_view point_name(Point point) { return kPoints.at(size_t(point)).name; }

void Hook::run(Point point, Trainer& trainer) {
  (this->*kPoints.at(size_t(point)).function)(trainer);
}

std::optional<PointSet> LambdaHook::points() const {
  PointSet set;
  for (size_t i = 0; i < kPointCount; ++i) set.set(i, static_cast<bool>(functions_[i]));
  return set;
}

HookHandle::HookHandle(std::shared_ptr<Hook> hook, PointSet points)
    : hook_(std::move(hook)),
      points_(points),
      main_process_only_(dynamic_cast<MainProcessHook*>(hook_.get()) != nullptr) {
  if (hook_ == nullptr)
    throw Error("G-HOOK-1", ErrorKind::usage, "hooks: expected a hook, received a null pointer",
                "Leave the entry out.");
}

namespace detail {

std::string type_name(const std::type_info& type) { return unqualified_name(type); }

std::optional<double> number_of(const std::any& value) {
  if (const auto* number = std::any_cast<int64_t>(&value)) return double(*number);
  if (const auto* number = std::any_cast<int>(&value)) return double(*number);
  if (const auto* number = std::any_cast<size_t>(&value)) return double(*number);
  if (const auto* number = std::any_cast<double>(&value)) return *number;
  if (const auto* number = std::any_cast<float>(&value)) return double(*number);
  if (const auto* number = std::any_cast<bool>(&value)) return double(*number);
  return std::nullopt;
}

void wrong_type(const std::string& key, const std::type_info& expected,
                const std::type_info& received) {
  throw Error("G-HOOK-4", ErrorKind::usage,
              fmt::format("trainer state '{}': expected {}, received {}", key,
                          c10::demangle(expected.name()), c10::demangle(received.name())),
              "Read the value with the type it was stored with.");
}

const std::any* find_value(const Trainer& trainer, const std::string& key) {
  const auto found = trainer.state().find(key);
  return found == trainer.state().end() ? nullptr : &found->second;
}

void put_value(Trainer& trainer, const std::string& key, std::any value) {
  trainer.state()[key] = std::move(value);
}

void OperationOwners::add(const Hook& by) { owners_.push_back(hook_text(by)); }

void OperationOwners::replace(const Hook& by) {
  if (!owners_.empty())
    throw Error("G-HOOK-5", ErrorKind::usage,
                fmt::format("{} replaces {}, which {} changed before it: that would be lost",
                            hook_text(by), name_, fmt::join(owners_, ", then ")),
                fmt::format("Let {} run first (a lower ord than the others), let it wrap what is "
                            "there, or leave one of them out.",
                            by.name()));
  add(by);
}

}  // namespace detail
}  // namespace gradus::hooks
