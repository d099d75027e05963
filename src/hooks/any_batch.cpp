#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/hooks/any_batch.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradus::hooks {
namespace {

[[noreturn]] void wrong_form(const std::string& expected, const std::string& received) {
  throw Error(
      "G-HOOK-3", ErrorKind::data,
      fmt::format("the step takes {} as its batch, received {}", expected, received),
      "Give the step the parameter its batches have: const gradus::Batch&, const torch::Tensor&, "
      "const std::vector<torch::Tensor>&, or const hooks::AnyBatch& for any of them.");
}

}  // namespace

const Batch& AnyBatch::dictionary() const {
  if (const auto* batch = std::get_if<Batch>(&value_)) return *batch;
  wrong_form("a dictionary", is_tensor() ? "a tensor" : is_list() ? "a list of tensors" : "none");
}

const torch::Tensor& AnyBatch::tensor() const {
  if (const auto* tensor = std::get_if<torch::Tensor>(&value_)) return *tensor;
  if (const auto* batch = std::get_if<Batch>(&value_)) {
    if (batch->size() == 1) return batch->begin()->second;
    wrong_form("one tensor", fmt::format("a dictionary with {} entries ({})", batch->size(),
                                         fmt::join(batch->names(), ", ")));
  }
  const auto* list = std::get_if<std::vector<torch::Tensor>>(&value_);
  if (list == nullptr) wrong_form("one tensor", "none");
  if (list->size() == 1) return list->front();
  wrong_form("one tensor", fmt::format("a list of {}", list->size()));
}

std::vector<torch::Tensor> AnyBatch::list() const {
  if (const auto* list = std::get_if<std::vector<torch::Tensor>>(&value_)) return *list;
  if (const auto* tensor = std::get_if<torch::Tensor>(&value_)) return {*tensor};
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : dictionary()) tensors.push_back(tensor);
  return tensors;
}

int64_t AnyBatch::rows() const {
  const auto first_dimension = [](const torch::Tensor& tensor) {
    return tensor.defined() && tensor.dim() > 0 ? tensor.size(0) : 1;
  };
  if (const auto* tensor = std::get_if<torch::Tensor>(&value_)) return first_dimension(*tensor);
  if (const auto* list = std::get_if<std::vector<torch::Tensor>>(&value_))
    return list->empty() ? 1 : first_dimension(list->front());
  const auto* batch = std::get_if<Batch>(&value_);
  return batch == nullptr || batch->empty() ? 1 : first_dimension(batch->begin()->second);
}

AnyBatch AnyBatch::to(torch::Device device) const {
  if (const auto* batch = std::get_if<Batch>(&value_)) return AnyBatch(batch->to(device));
  if (const auto* tensor = std::get_if<torch::Tensor>(&value_))
    return AnyBatch(tensor->to(device, /*non_blocking=*/true));
  auto tensors = list();
  for (auto& tensor : tensors) tensor = tensor.to(device, /*non_blocking=*/true);
  return AnyBatch(std::move(tensors));
}

BatchPass::BatchPass(BatchIterator iterator) : iterator_(std::move(iterator)) {}
BatchPass::BatchPass(std::shared_ptr<const std::vector<AnyBatch>> list, int64_t first)
    : list_(std::move(list)), next_(size_t(first)) {}

std::optional<AnyBatch> BatchPass::next() {
  if (list_ != nullptr)
    return next_ < list_->size() ? std::optional((*list_)[next_++]) : std::nullopt;
  auto batch = iterator_->next();
  return batch ? std::optional(AnyBatch(std::move(*batch))) : std::nullopt;
}

nlohmann::json BatchPass::state() const {
  return iterator_ ? iterator_->state() : nlohmann::json();
}

std::optional<int64_t> Batches::size() const {
  return list_ == nullptr ? loader_.size() : std::optional(int64_t(list_->size()));
}

Batches Batches::share_of(int64_t rank, int64_t world) const {
  if (!*this) return {};
  if (list_ != nullptr) {
    std::vector<AnyBatch> own;
    const auto count = int64_t(list_->size());
    for (int64_t first = 0; first < count; first += world)
      own.push_back((*list_)[size_t((first + rank) % count)]);
    return own;
  }
  const auto* options = loader_.options();
  if (options == nullptr || options->batch_sampler)
    throw Error("G-HOOK-3", ErrorKind::usage,
                "batches that a BatchSource or a batch sampler makes cannot be shared by several "
                "processes",
                "Give a DataLoader with a data set, or a list of batches.");
  auto shared = *options;
  shared.shard = {.rank = rank, .world = world, .dispatch = shared.dataset.is_iterable()};
  return DataLoader(std::move(shared));
}

BatchPass Batches::iterate(int64_t epoch, int64_t first, const nlohmann::json& state) const {
  if (list_ != nullptr) return {list_, first};
  return BatchPass(state.is_null() ? loader_.iterate(epoch, first)
                                   : loader_.iterate(epoch, first, state));
}

}  // namespace gradus::hooks
