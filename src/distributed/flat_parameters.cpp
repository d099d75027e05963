#include "distributed/flat_parameters.h"

#include <algorithm>
#include <cmath>

namespace gradus {
namespace {

// Kernels like parameters that begin at a multiple of 64 bytes.
constexpr int64_t kAlignment = 16;

constexpr const char* kDropped =
    "the values of this parameter lie in parts in several processes (--fsdp full_shard): read them "
    "with a torch operation in all processes, or after train()";

// A read of dropped values is an error with this text. LibTorch 2.11 cannot take such a text back
// and goes without.
template <class Storage>
void refuse_reads(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); })
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(kDropped);
}
template <class Storage>
void allow_reads(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); })
    storage.clear_data_ptr_access_error_msg_();
}

}  // namespace

FlatParameters::FlatParameters(const NamedTensors& parameters, torch::ScalarType dtype,
                               bool has_own_shard, int64_t rank, int64_t size)
    : rank_(rank), size_(size) {
  const torch::NoGradGuard no_grad;
  int64_t elements = 0;
  for (const auto& [name, parameter] : parameters) {
    members_.push_back({name, parameter, elements});
    elements += (parameter.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  share_ = std::max<int64_t>((elements + size - 1) / size, 1);
  const auto& first = members_.front().parameter;
  is_trained_ = first.requires_grad();
  const auto options = first.options().requires_grad(false);
  auto values = torch::zeros({total()}, options);
  for (const auto& member : members_)
    values.narrow(0, member.offset, member.parameter.numel())
        .view(member.parameter.sizes())
        .copy_(member.parameter);
  whole_ = dtype == values.scalar_type() ? values : values.to(dtype);
  shard_ = values.narrow(0, rank * share_, share_);
  if (has_own_shard || !is_exact()) shard_ = shard_.clone();
  for (auto& member : members_) {
    const auto end = member.offset + member.parameter.numel();
    const auto first_own = std::clamp(rank * share_, member.offset, end);
    const auto last_own = std::clamp((rank + 1) * share_, member.offset, end);
    auto& part = member.part;
    part.begin = first_own - member.offset;
    part.length = last_own - first_own;
    part.place = std::max<int64_t>(first_own - rank * share_, 0);
    if (part.length == 0) part.place = 0;
    part.values = shard_.narrow(0, part.place, part.length).detach();
  }
  view_parameters(whole_);
}

void FlatParameters::view_parameters(const torch::Tensor& of) const {
  const torch::NoGradGuard no_grad;
  for (const auto& member : members_) {
    auto parameter = member.parameter;
    parameter.set_data(
        of.narrow(0, member.offset, parameter.numel()).view(parameter.sizes()).detach());
  }
}

void FlatParameters::allocate() {
  if (!std::exchange(is_dropped_, false)) return;
  auto* storage = whole_.storage().unsafeGetStorageImpl();
  const auto bytes = size_t(total()) * whole_.element_size();
  allow_reads(*storage);
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
}

// The storage keeps its size, which views are checked against.
void FlatParameters::drop() {
  if (std::exchange(is_dropped_, true)) return;
  auto* storage = whole_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, whole_.device()));
  refuse_reads(*storage);
}

ProcessGroup::Pending FlatParameters::start_gather(ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  allocate();
  return group.start_gather(whole_, shard_.to(whole_.scalar_type()));
}

ProcessGroup::Pending FlatParameters::show_shards(ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  shown_ = torch::empty({total()}, shard_.options());
  view_parameters(shown_);
  return group.start_gather(shown_, shard_);
}

void FlatParameters::show_own() {
  const torch::NoGradGuard no_grad;
  shown_ = torch::full({total()}, std::nan(""), shard_.options());
  shown_.narrow(0, rank_ * share_, share_).copy_(shard_);
  view_parameters(shown_);
}

void FlatParameters::hide_shards(bool is_written) {
  const torch::NoGradGuard no_grad;
  if (is_written) {
    shard_.copy_(shown_.narrow(0, rank_ * share_, share_));
    if (!is_dropped_) whole_.copy_(shown_);
  }
  view_parameters(whole_);
  shown_.reset();
}

void FlatParameters::give_back() {
  const torch::NoGradGuard no_grad;
  for (const auto& member : members_) {
    auto parameter = member.parameter;
    parameter.mutable_grad().reset();
    auto own = torch::empty(parameter.sizes(), shard_.options());
    own.copy_(parameter);
    parameter.set_data(own);
  }
}

}  // namespace gradus
