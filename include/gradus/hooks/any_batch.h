#pragma once

#include <gradus/data/data_loader.h>

#include <concepts>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace gradus::hooks {

class Trainer;

/// What a step returns: names and tensors, `loss` among them.
using Result = Batch;

/// One batch: a dictionary of tensors, a tensor, or a list of tensors.
class AnyBatch {
 public:
  AnyBatch() = default;
  explicit AnyBatch(Batch batch) : value_(std::move(batch)) {}
  explicit AnyBatch(torch::Tensor tensor) : value_(std::move(tensor)) {}
  explicit AnyBatch(std::vector<torch::Tensor> list) : value_(std::move(list)) {}

  bool is_dictionary() const { return std::holds_alternative<Batch>(value_); }
  bool is_tensor() const { return std::holds_alternative<torch::Tensor>(value_); }
  bool is_list() const { return std::holds_alternative<std::vector<torch::Tensor>>(value_); }

  /// The dictionary. Throws `Error` G-HOOK-3 for a tensor or a list, which have no names.
  const Batch& dictionary() const;
  /// The tensor, or the only one of a list or dictionary. Throws G-HOOK-3 where there are more.
  const torch::Tensor& tensor() const;
  /// The tensors in order; one for a tensor.
  std::vector<torch::Tensor> list() const;

  /// Rows for counting: the first dimension of the first tensor; 1 where there is none.
  int64_t rows() const;
  AnyBatch to(torch::Device device) const;

 private:
  std::variant<std::monostate, Batch, torch::Tensor, std::vector<torch::Tensor>> value_;
};

/// A step of the user's: `(batch, trainer) -> Result`. The batch parameter may be `const Batch&`,
/// `const torch::Tensor&`, `const std::vector<torch::Tensor>&` or `const AnyBatch&`; batches are
/// given in that form.
class StepFunction {
 public:
  StepFunction() = default;

  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, StepFunction>)
  StepFunction(F function) {
    if constexpr (std::is_invocable_v<F&, const Batch&, Trainer&>) {
      check_result<std::invoke_result_t<F&, const Batch&, Trainer&>>();
      call_ = [f = std::move(function)](const AnyBatch& batch, Trainer& trainer) mutable -> Result {
        return f(batch.dictionary(), trainer);
      };
    } else if constexpr (std::is_invocable_v<F&, const torch::Tensor&, Trainer&>) {
      check_result<std::invoke_result_t<F&, const torch::Tensor&, Trainer&>>();
      call_ = [f = std::move(function)](const AnyBatch& batch, Trainer& trainer) mutable -> Result {
        return f(batch.tensor(), trainer);
      };
    } else if constexpr (std::is_invocable_v<F&, const std::vector<torch::Tensor>&, Trainer&>) {
      check_result<std::invoke_result_t<F&, const std::vector<torch::Tensor>&, Trainer&>>();
      call_ = [f = std::move(function)](const AnyBatch& batch, Trainer& trainer) mutable -> Result {
        return f(batch.list(), trainer);
      };
    } else {
      static_assert(std::is_invocable_v<F&, const AnyBatch&, Trainer&>,
                    "a step takes (batch, hooks::Trainer&); batch: const gradus::Batch&, const "
                    "torch::Tensor&, const std::vector<torch::Tensor>& or const hooks::AnyBatch&");
      check_result<std::invoke_result_t<F&, const AnyBatch&, Trainer&>>();
      call_ = std::move(function);
    }
  }

  explicit operator bool() const { return static_cast<bool>(call_); }
  Result operator()(const AnyBatch& batch, Trainer& trainer) const { return call_(batch, trainer); }

 private:
  template <class R>
  static constexpr void check_result() {
    static_assert(std::is_convertible_v<R, Result>,
                  "a step returns hooks::Result: {{\"loss\", loss}, ...}");
  }

  std::function<Result(const AnyBatch&, Trainer&)> call_;
};

/// One pass over `Batches`.
class BatchPass {
 public:
  explicit BatchPass(BatchIterator iterator);
  BatchPass(std::shared_ptr<const std::vector<AnyBatch>> list, int64_t first);
  std::optional<AnyBatch> next();
  /// See `BatchIterator::state`.
  nlohmann::json state() const;

 private:
  std::optional<BatchIterator> iterator_;
  std::shared_ptr<const std::vector<AnyBatch>> list_;
  size_t next_ = 0;
};

/// Where a trainer's batches come from: a `DataLoader`, or batches that are already there.
class Batches {
 public:
  Batches() = default;
  Batches(DataLoader loader) : loader_(std::move(loader)) {}
  Batches(std::vector<AnyBatch> list)
      : list_(std::make_shared<const std::vector<AnyBatch>>(std::move(list))) {}
  Batches(const std::vector<Batch>& list) : Batches(wrapped(list)) {}
  Batches(const std::vector<torch::Tensor>& list) : Batches(wrapped(list)) {}
  Batches(const std::vector<std::vector<torch::Tensor>>& list) : Batches(wrapped(list)) {}

  explicit operator bool() const { return static_cast<bool>(loader_) || list_ != nullptr; }
  /// Batches of a pass, where that is known.
  std::optional<int64_t> size() const;
  /// The batches of pass `epoch` from number `first` on; `state` is what `BatchPass::state` gave,
  /// or null.
  BatchPass iterate(int64_t epoch, int64_t first, const nlohmann::json& state) const;
  /// The loader; null for batches that are already there.
  const DataLoader* loader() const { return loader_ ? &loader_ : nullptr; }

 private:
  template <class T>
  static std::vector<AnyBatch> wrapped(const std::vector<T>& list) {
    std::vector<AnyBatch> result;
    for (const auto& one : list) result.emplace_back(one);
    return result;
  }

  DataLoader loader_;
  std::shared_ptr<const std::vector<AnyBatch>> list_;
};

}  // namespace gradus::hooks
