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

/// What a step returns: tensors by name.
///
/// A training step must return `loss`, which is one number. Metrics and hooks read the others, for
/// example `preds` and `targets`.
using Result = Batch;

/// One batch: a dictionary of tensors, a tensor, or a list of tensors. Loaders give dictionaries;
/// the other two are for batches that a user makes.
///
/// Copying is cheap, because the tensors are shared. Thread-safety: as a `std::vector`.
class AnyBatch {
 public:
  /// No batch: neither dictionary nor tensor nor list.
  AnyBatch() = default;
  /// A dictionary.
  explicit AnyBatch(Batch batch) : value_(std::move(batch)) {}
  /// A tensor.
  explicit AnyBatch(torch::Tensor tensor) : value_(std::move(tensor)) {}
  /// A list.
  explicit AnyBatch(std::vector<torch::Tensor> list) : value_(std::move(list)) {}

  /// Whether it is a dictionary.
  bool is_dictionary() const { return std::holds_alternative<Batch>(value_); }
  /// Whether it is a tensor.
  bool is_tensor() const { return std::holds_alternative<torch::Tensor>(value_); }
  /// Whether it is a list.
  bool is_list() const { return std::holds_alternative<std::vector<torch::Tensor>>(value_); }

  /// The dictionary. Throws `Error` G-HOOK-3 for a tensor or a list, which have no names.
  const Batch& dictionary() const;
  /// The tensor, or the only one of a list or dictionary. Throws G-HOOK-3 where there are more.
  const torch::Tensor& tensor() const;
  /// The tensors in order; one for a tensor.
  std::vector<torch::Tensor> list() const;

  /// How many rows the batch counts for in speeds and sample counts: the first dimension of the
  /// first tensor; 1 where there is none.
  int64_t rows() const;
  /// The same batch on `device`.
  AnyBatch to(torch::Device device) const;

 private:
  std::variant<std::monostate, Batch, torch::Tensor, std::vector<torch::Tensor>> value_;
};

/// A step that a user writes: `(batch, trainer) -> Result`.
///
/// The batch parameter may be `const Batch&`, `const torch::Tensor&`,
/// `const std::vector<torch::Tensor>&` or `const AnyBatch&`, and each batch is handed over in that
/// form. A function that takes or returns something else does not compile, and the compiler's
/// message says what a step looks like.
class StepFunction {
 public:
  /// No step.
  StepFunction() = default;

  /// Wraps any function of one of the four forms.
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

  /// Whether there is a step.
  explicit operator bool() const { return static_cast<bool>(call_); }
  /// Calls it. Throws `Error` G-HOOK-3 when the batch does not have the form that the step takes.
  Result operator()(const AnyBatch& batch, Trainer& trainer) const { return call_(batch, trainer); }

 private:
  template <class R>
  static constexpr void check_result() {
    static_assert(std::is_convertible_v<R, Result>,
                  "a step returns hooks::Result: {{\"loss\", loss}, ...}");
  }

  std::function<Result(const AnyBatch&, Trainer&)> call_;
};

/// One pass over `Batches`. `Batches::iterate` makes it.
class BatchPass {
 public:
  /// A pass over what a loader gives.
  explicit BatchPass(BatchIterator iterator);
  /// A pass over a list, from number `first` on.
  BatchPass(std::shared_ptr<const std::vector<AnyBatch>> list, int64_t first);
  /// The next batch, or nothing at the end of the pass.
  std::optional<AnyBatch> next();
  /// What a later pass needs, besides the number of batches done, to go on from here; null where
  /// the number is enough. See `BatchIterator::state`.
  nlohmann::json state() const;

 private:
  std::optional<BatchIterator> iterator_;
  std::shared_ptr<const std::vector<AnyBatch>> list_;
  size_t next_ = 0;
};

/// Where a trainer's batches come from: a `DataLoader`, or a list of batches in memory.
///
/// Every constructor converts, so that `.train_dl = loader` and `.train_dl = list` both work.
/// Copies share loader and list.
class Batches {
 public:
  /// No batches.
  Batches() = default;
  /// The batches of a loader.
  Batches(DataLoader loader) : loader_(std::move(loader)) {}
  /// These batches, in this order in every epoch.
  Batches(std::vector<AnyBatch> list)
      : list_(std::make_shared<const std::vector<AnyBatch>>(std::move(list))) {}
  /// Dictionaries.
  Batches(const std::vector<Batch>& list) : Batches(wrapped(list)) {}
  /// Tensors.
  Batches(const std::vector<torch::Tensor>& list) : Batches(wrapped(list)) {}
  /// Lists of tensors.
  Batches(const std::vector<std::vector<torch::Tensor>>& list) : Batches(wrapped(list)) {}

  /// Whether there are batches at all.
  explicit operator bool() const { return static_cast<bool>(loader_) || list_ != nullptr; }
  /// Batches of a pass, where that is known.
  std::optional<int64_t> size() const;
  /// The batches of pass `epoch` from number `first` on. `state` is what `BatchPass::state`
  /// returned, or null.
  BatchPass iterate(int64_t epoch, int64_t first, const nlohmann::json& state) const;
  /// The batches of process `rank` of `world`: every `world`-th, from number `rank` on. The last
  /// round is filled up from the beginning, so that all processes have equally many. Throws `Error`
  /// G-HOOK-3 for a loader of batches that a user makes, which cannot be cut.
  Batches share_of(int64_t rank, int64_t world) const;
  /// The loader, for hooks that want to know its options; null for a list.
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
