#include "engine/sharded.h"

#include <ATen/record_function.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/optim/master_weights.h>
#include <gradus/optim/optimizer.h>

#include <algorithm>
#include <deque>
#include <unordered_set>

#include "distributed/gather_on_use.h"
#include "distributed/gradient_shards.h"

namespace gradus {
namespace {

// So many blocks are gathered at once after a step.
constexpr size_t kGathersAtOnce = 4;

// A list of modules names its children 0, 1, 2 ...
bool is_module_list(const torch::nn::Module& module) {
  const auto children = module.named_children();
  for (size_t i = 0; i < children.size(); ++i)
    if (children[i].key() != std::to_string(i)) return false;
  return !children.is_empty();
}

void find_blocks(const torch::nn::Module& module, const std::string& prefix,
                 std::vector<std::string>& found) {
  const bool is_list = is_module_list(module);
  for (const auto& child : module.named_children()) {
    if (is_list)
      found.push_back(prefix + child.key() + ".");
    else
      find_blocks(*child.value(), prefix + child.key() + ".", found);
  }
}

// Modules with at least `least` parameters that are in no such module below them. Returns how many
// parameters are left.
int64_t find_large(const torch::nn::Module& module, const std::string& prefix, int64_t least,
                   std::vector<std::string>& found) {
  int64_t rest = 0;
  for (const auto& parameter : module.parameters(/*recurse=*/false)) rest += parameter.numel();
  for (const auto& child : module.named_children())
    rest += find_large(*child.value(), prefix + child.key() + ".", least, found);
  if (rest < least || prefix.empty()) return rest;
  found.push_back(prefix);
  return 0;
}

// The prefixes of the names of each unit but the first, in the order of a forward pass.
std::vector<std::string> unit_prefixes(const torch::nn::Module& model,
                                       const ShardedOptions& options) {
  std::vector<std::string> found;
  if (options.wrap == ShardedOptions::Wrap::blocks) find_blocks(model, "", found);
  if (options.wrap == ShardedOptions::Wrap::by_size)
    find_large(model, "", std::max<int64_t>(options.min_num_params, 1), found);
  return found;
}

// The unit of a parameter: that of the longest prefix, or the first.
size_t unit_of(const std::string& name, const std::vector<std::string>& prefixes) {
  size_t best = 0, length = 0;
  for (size_t i = 0; i < prefixes.size(); ++i)
    if (name.starts_with(prefixes[i]) && prefixes[i].size() > length) {
      best = i + 1;
      length = prefixes[i].size();
    }
  return best;
}

// A tensor of a parameter's state as the part has it: a slice of it, or of each of several.
torch::Tensor slice_of(const torch::Tensor& state, const torch::Tensor& parameter,
                       const FlatParameters::Part& part) {
  if (state.sizes() == parameter.sizes())
    return state.reshape({-1}).narrow(0, part.begin, part.length);
  if (state.dim() == parameter.dim() + 1 && state.sizes().slice(1) == parameter.sizes())
    return state.reshape({state.size(0), -1}).narrow(1, part.begin, part.length);
  return state;
}

}  // namespace

Sharded::Sharded(std::shared_ptr<ProcessGroup> group, ShardedOptions options)
    : DataParallel(std::move(group), {.broadcast_buffers = options.broadcast_buffers}),
      options_(options) {}

Sharded::~Sharded() = default;

template <class F>
void Sharded::each_flat(const F& use) const {
  for (const auto& unit : units_)
    for (const auto& flat : unit.flats) use(*flat);
}

void Sharded::prepare(torch::nn::Module& model) {
  DataParallel::prepare(model);
  if (!gradient_channel_) {
    gradient_channel_ = this->group()->channel("gradients");
    parameter_channel_ = this->group()->channel("parameters");
  }
  make_units(model);
  std::vector<FlatParameters*> trained;  // as backward passes end: what is in no block comes last
  const auto add = [&](const ParameterUnit& unit) {
    for (const auto& flat : unit.flats)
      if (flat->is_trained()) trained.push_back(flat.get());
  };
  for (size_t u = units_.size(); u-- > 1;) add(units_[u]);
  add(units_.front());
  for (const auto* flat : trained)
    for (const auto& member : flat->members())
      parts_[member.parameter.unsafeGetTensorImpl()] = member.part;
  gradients_ = std::make_unique<GradientShards>(trained, group(), gradient_channel_);
  if (options_.stage == 3) gathering_ = std::make_unique<GatherOnUse>(units_, parameter_channel_);
}

// Parameters of a unit that share type, precision and whether they are trained are flat together.
void Sharded::make_units(torch::nn::Module& model) {
  std::unordered_set<const void*> seen, halved;
  if (options_.master_weights)
    for (const auto& parameter : halvable_parameters(model))
      halved.insert(parameter.unsafeGetTensorImpl());
  const auto prefixes = unit_prefixes(model, options_);
  using Kind = std::tuple<torch::ScalarType, torch::ScalarType, bool>;
  std::vector<std::vector<std::pair<Kind, FlatParameters::NamedTensors>>> kinds(prefixes.size() +
                                                                                1);
  for (const auto& item : model.named_parameters()) {
    const auto& parameter = item.value();
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    if (parameter.numel() == 0) continue;
    const bool is_half = halved.contains(parameter.unsafeGetTensorImpl());
    if (options_.stage < 3 && !parameter.requires_grad() && !is_half) continue;
    const auto dtype = parameter.scalar_type();
    const Kind kind{dtype, is_half ? torch::kBFloat16 : dtype, parameter.requires_grad()};
    auto& unit = kinds[unit_of(item.key(), prefixes)];
    auto found = std::find_if(unit.begin(), unit.end(),
                              [&](const auto& entry) { return entry.first == kind; });
    if (found == unit.end()) {
      unit.emplace_back(kind, FlatParameters::NamedTensors());
      found = std::prev(unit.end());
    }
    found->second.emplace_back(item.key(), parameter);
  }
  units_.clear();
  for (const auto& unit : kinds) {
    units_.emplace_back();
    for (const auto& [kind, parameters] : unit)
      units_.back().flats.push_back(std::make_unique<FlatParameters>(
          parameters, std::get<1>(kind), options_.stage == 3, rank(), world_size()));
  }
  units_.front().stays = true;
}

void Sharded::attach(Optimizer& optimizer) {
  if (!optimizer.is_elementwise())
    throw Error("G-DIST-7", ErrorKind::usage,
                fmt::format("the optimizer {} cannot train parts of parameters: a step of it needs "
                            "whole tensors",
                            optimizer.name()),
                "Use one of adamw_torch, adamw_torch_fused, sgd, adagrad, rmsprop, lion_32bit, "
                "ademamix and paged_adamw_32bit, or leave out --fsdp and --zero_stage.");
  numbered_.clear();
  std::vector<torch::Tensor> parameters, parts;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params) {
      const auto found = parts_.find(parameter.unsafeGetTensorImpl());
      numbered_.emplace_back(parameter,
                             found == parts_.end() ? FlatParameters::Part{} : found->second);
      if (found == parts_.end()) continue;
      parameters.push_back(parameter);
      parts.push_back(found->second.values);
    }
  }
  const auto state = optimizer.state_dict();
  optimizer_ = &optimizer;
  optimizer.train_parts(parameters, parts);
  if (!state.at("state").entries().empty()) optimizer.load_state_dict(localize(state));
}

void Sharded::begin_window() {
  if (gradients_) share_buffers();
}

// With stage 1 gradients are whole until the end of a window.
std::unique_ptr<Strategy::NoSync> Sharded::no_sync() {
  struct Held : NoSync {
    explicit Held(GradientShards& gradients) : gradients(gradients) {
      gradients.set_sending(false);
    }
    ~Held() override { gradients.set_sending(true); }
    GradientShards& gradients;
  };
  return gradients_ && options_.stage == 1 ? std::make_unique<Held>(*gradients_) : nullptr;
}

void Sharded::end_micro_batch() {
  if (gradients_) gradients_->end_backward();
}

void Sharded::sync_gradients(std::span<const torch::Tensor>) {
  if (!gradients_) return;
  const bool is_same = gradients_->finish(gathering_ ? gathering_->take_order() : 0);
  if (gathering_) gathering_->drop_all();
  if (!is_same)
    throw Error("G-DIST-8", ErrorKind::training,
                "the processes have used the blocks of the model in different orders in this step",
                "With --fsdp full_shard every process must use the same blocks in the same order. "
                "Use --fsdp shard_grad_op for a model whose data decides which blocks it uses.");
}

void Sharded::end_step() {
  if (gathering_) return gathering_->drop_all();
  if (gradients_) gather_wholes();
}

void Sharded::gather_wholes() {
  std::deque<ProcessGroup::Pending> pending;
  const auto wait_for_one = [&] {
    pending.front().wait();
    pending.pop_front();
  };
  each_flat([&](FlatParameters& flat) {
    if (!flat.is_trained()) return;
    if (pending.size() >= kGathersAtOnce) wait_for_one();
    pending.push_back(flat.start_gather(*parameter_channel_));
  });
  while (!pending.empty()) wait_for_one();
}

void Sharded::drop_gradients() {
  if (gradients_) gradients_->drop();
}

void Sharded::release() {
  if (gradients_) {
    if (auto* optimizer = std::exchange(optimizer_, nullptr)) optimizer->release_parts();
    gradients_.reset();
    bool is_complete = !group()->is_lost();
    if (gathering_) gathering_->forget();
    try {
      if (is_complete) {
        std::vector<ProcessGroup::Pending> pending;
        each_flat([&](FlatParameters& flat) {
          if (options_.stage == 3 || !flat.is_exact())
            pending.push_back(flat.show_shards(*parameter_channel_));
        });
        for (auto& each : pending) each.wait();
      }
    } catch (const Error&) {
      is_complete = false;
    }
    if (!is_complete) {
      log_info("The weights of this process are incomplete: the other processes are lost.");
      each_flat([](FlatParameters& flat) { flat.show_own(); });
    }
    each_flat([](FlatParameters& flat) { flat.give_back(); });
    gathering_.reset();
    units_.clear();
    parts_.clear();
    open_ = 0;
  }
  DataParallel::release();
}

torch::Tensor Sharded::part_of(const torch::Tensor& parameter) const {
  const auto found = parts_.find(parameter.unsafeGetTensorImpl());
  return found == parts_.end() ? parameter : found->second.values;
}

void Sharded::sum_parts(torch::Tensor& value) { group()->sum(value); }

std::optional<TensorPart> Sharded::held_part(const torch::Tensor& tensor) const {
  if (!tensor.has_storage()) return std::nullopt;
  const void* storage = tensor.storage().unsafeGetStorageImpl();
  std::optional<TensorPart> held;
  each_flat([&](const FlatParameters& flat) {
    if (flat.storage() != storage) return;
    for (const auto& member : flat.members())
      if (member.offset == tensor.storage_offset())
        held = TensorPart{member.part.begin, member.part.values};
  });
  return held;
}

std::optional<std::pair<int64_t, int64_t>> Sharded::held_range(int64_t number) const {
  if (number < 0 || size_t(number) >= numbered_.size()) return std::nullopt;
  const auto& part = numbered_[size_t(number)].second;
  if (!part.values.defined()) return std::nullopt;
  return std::pair(part.begin, part.length);
}

std::vector<torch::Tensor> Sharded::numbered_parameters() const {
  std::vector<torch::Tensor> parameters;
  for (const auto& [parameter, part] : numbered_) parameters.push_back(parameter);
  return parameters;
}

StateTree Sharded::localize(StateTree state) const {
  auto entries = StateTree::dict();
  for (const auto& [key, entry] : state.at("state").entries()) {
    const auto* number = std::get_if<int64_t>(&key);
    if (number == nullptr || *number < 0 || size_t(*number) >= numbered_.size()) {
      entries.set(key, entry);  // load_state_dict says what is wrong with it
      continue;
    }
    const auto& [parameter, part] = numbered_[size_t(*number)];
    if (!part.values.defined()) {
      entries.set(key, entry);
      continue;
    }
    if (part.length == 0) continue;
    auto local = StateTree::dict();
    for (const auto& [name, value] : entry.entries()) {
      const bool is_step = name == StateTree::Key("step");
      local.set(name, value.is_tensor() && !is_step
                          ? StateTree(slice_of(value.as_tensor(), parameter, part))
                          : value);
    }
    entries.set(key, std::move(local));
  }
  return state.set("state", std::move(entries));
}

// Shows the weights while it lives; scopes within it add nothing.
struct Sharded::Opened : Whole {
  explicit Opened(Sharded& of, bool is_computed) : sharded(of), is_computed(is_computed) {}
  ~Opened() override {
    if (--sharded.open_ > 0 || !sharded.gradients_) return;
    if (is_computed) {
      sharded.gathering_->drop_all();
      return;
    }
    const bool is_written = std::exchange(sharded.is_written_, false);
    const at::DisableRecordFunctionGuard unseen;
    sharded.each_flat([&](FlatParameters& flat) { flat.hide_shards(is_written); });
  }
  Sharded& sharded;
  bool is_computed;
};

std::unique_ptr<Strategy::Whole> Sharded::whole(Use use) {
  if (!gradients_) return nullptr;
  const bool is_computed = use == Use::computed;
  if (weights_stay_whole() || (is_computed && options_.stage < 3)) return nullptr;
  is_written_ |= use == Use::written;
  auto opened = std::make_unique<Opened>(*this, is_computed);
  if (open_++ > 0) return opened;
  if (is_computed) {
    gathering_->gather_all();
    return opened;
  }
  if (gathering_) gathering_->drop_all();
  const at::DisableRecordFunctionGuard unseen;  // parameters change their memory, nobody uses them
  std::vector<ProcessGroup::Pending> pending;
  each_flat(
      [&](FlatParameters& flat) { pending.push_back(flat.show_shards(*parameter_channel_)); });
  for (auto& each : pending) each.wait();
  return opened;
}

}  // namespace gradus
