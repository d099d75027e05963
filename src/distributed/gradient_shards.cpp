#include "distributed/gradient_shards.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace gradus {
namespace {

// So many buffers may be on their way at once. The next one fills meanwhile and is sent as soon as
// it is full, so more would hardly save time and take the memory of two blocks each.
constexpr size_t kInFlight = 1;

// A thread of Gloo may hold on to the tensors of an exchange for a moment after it has ended.
void free_memory(torch::Tensor& tensor) {
  tensor.storage().unsafeGetStorageImpl()->reset();
  tensor.reset();
}

}  // namespace

struct GradientShards::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(GradientShards& shards, size_t entry, size_t member)
      : shards(shards), entry(entry), member(member) {}
  void operator()(const torch::Tensor&) override { shards.gradient_is_ready(entry, member); }
  GradientShards& shards;
  size_t entry, member;
};

GradientShards::GradientShards(std::vector<FlatParameters*> flats,
                               std::shared_ptr<ProcessGroup> group,
                               std::shared_ptr<ProcessGroup> channel)
    : group_(std::move(group)), channel_(std::move(channel)) {
  for (auto* flat : flats) {
    Entry entry;
    entry.flat = flat;
    entry.is_used.assign(flat->members().size(), false);
    entries_.push_back(std::move(entry));
  }
  for (size_t e = 0; e < entries_.size(); ++e)
    for (size_t i = 0; i < flats[e]->members().size(); ++i)
      torch::autograd::impl::set_post_acc_grad_hooks(flats[e]->members()[i].parameter,
                                                     std::make_unique<Hook>(*this, e, i));
  begin_backward();
}

GradientShards::~GradientShards() {
  for (const auto& entry : entries_)
    for (const auto& member : entry.flat->members())
      torch::autograd::impl::set_post_acc_grad_hooks(member.parameter, nullptr);
}

void GradientShards::Entry::begin() {
  missing = flat->members().size();
  is_written.assign(missing, false);
  is_sent = false;
  buffer.reset();
}

void GradientShards::begin_backward() {
  next_ = 0;
  for (auto& entry : entries_) entry.begin();
}

void GradientShards::gradient_is_ready(size_t index, size_t member) {
  const std::scoped_lock lock(mutex_);
  auto& entry = entries_[index];
  entry.is_used[member] = true;
  if (!sends_) return;
  if (entry.is_sent) {
    entry.is_late = true;  // it stays with the parameter until the end of the window
    return;
  }
  move_to_buffer(entry, member);
  while (next_ < entries_.size() && entries_[next_].missing == 0) send(entries_[next_++]);
}

void GradientShards::move_to_buffer(Entry& entry, size_t index) {
  const torch::NoGradGuard no_grad;
  const auto& member = entry.flat->members()[index];
  auto& gradient = member.parameter.mutable_grad();
  if (!gradient.defined()) return;
  if (!entry.buffer.defined())
    entry.buffer = torch::zeros({entry.flat->total()}, entry.flat->shard().options());
  entry.buffer.narrow(0, member.offset, gradient.numel())
      .view(member.parameter.sizes())
      .add_(gradient);
  gradient.reset();
  if (entry.is_written[index]) return;  // once more in one backward pass
  entry.is_written[index] = true;
  --entry.missing;
}

void GradientShards::send(Entry& entry) {
  const torch::NoGradGuard no_grad;
  entry.is_sent = true;
  // Gradients of a window that was not sent so far may belong to parameters that the last backward
  // pass did not reach.
  for (size_t i = 0; i < entry.flat->members().size(); ++i)
    if (!entry.is_written[i]) move_to_buffer(entry, i);
  if (!entry.buffer.defined())
    entry.buffer = torch::zeros({entry.flat->total()}, entry.flat->shard().options());
  if (in_flight_.size() >= kInFlight) receive_one();
  entry.buffer.mul_(1.0 / double(group_->size()));
  InFlight flight{&entry, std::move(entry.buffer), {}, {}};
  entry.buffer.reset();
  flight.received = torch::empty_like(flight.sent);
  flight.pending = channel_->start_all_to_all(flight.received, flight.sent);
  in_flight_.push_back(std::move(flight));
}

void GradientShards::receive_one() {
  const torch::NoGradGuard no_grad;
  auto flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  flight.pending.wait();
  free_memory(flight.sent);
  auto sum = flight.received.view({group_->size(), flight.entry->flat->share()}).sum(0);
  free_memory(flight.received);
  if (flight.entry->share.defined())
    flight.entry->share.add_(sum);
  else
    flight.entry->share = std::move(sum);
}

void GradientShards::end_backward() {
  const std::scoped_lock lock(mutex_);
  if (!sends_) return;
  sent_in_backward_ = next_;
  while (next_ < entries_.size()) send(entries_[next_++]);
  while (!in_flight_.empty()) receive_one();
  begin_backward();
}

bool GradientShards::finish(int64_t sign) {
  end_backward();
  // What each process knows: which parameters it used, which flat parameters have something left.
  std::vector<int64_t> own;
  for (const auto& entry : entries_) {
    for (const auto used : entry.is_used) own.push_back(int64_t(used));
    own.push_back(int64_t(entry.is_late));
  }
  own.push_back(sign);
  const auto all = torch::stack(group_->gather(torch::tensor(own, torch::kLong)));
  const auto anywhere = std::get<0>(all.max(0));
  const auto* values = anywhere.const_data_ptr<int64_t>();
  size_t at = 0;
  for (auto& entry : entries_) {
    const auto* used = values + at;
    at += entry.is_used.size();
    if (values[at++] != 0) {
      const std::scoped_lock lock(mutex_);
      send(entry);
      receive_one();
      entry.begin();
      entry.is_late = false;
    }
    for (size_t i = 0; i < entry.is_used.size(); ++i) {
      const auto& part = entry.flat->members()[i].part;
      auto& gradient = part.values.mutable_grad();
      if (used[i] != 0 && part.length > 0)
        gradient = entry.share.narrow(0, part.place, part.length);
      else
        gradient.reset();
    }
    entry.is_used.assign(entry.is_used.size(), false);
    entry.share.reset();  // the parts hold it
  }
  const auto signs = all.select(1, int64_t(at));
  return signs.eq(signs[0]).all().item<bool>();
}

void GradientShards::drop() {
  const std::scoped_lock lock(mutex_);
  for (auto& entry : entries_) {
    entry.share.reset();
    entry.is_used.assign(entry.is_used.size(), false);
    entry.is_late = false;
    for (const auto& member : entry.flat->members()) {
      member.part.values.mutable_grad().reset();
      member.parameter.mutable_grad().reset();
    }
  }
}

}  // namespace gradus
