#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/device/gpu.h>
#include <gradus/distributed/process_group.h>
// Without this the header of Gloo's group is empty.
#define USE_C10D_GLOO 1
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <thread>

#include "distributed/nccl_channel.h"

namespace gradus {
namespace {

using namespace std::chrono_literals;

// How long a process looks for the reason after an exchange has failed.
constexpr auto kInquiry = 2s;
constexpr auto kPoll = 50ms;
// How often a process that waits in an exchange looks whether another one has given up.
constexpr auto kGlance = 500ms;
constexpr auto kPatience = 2s;  // with the store
// NCCL ends the process when an exchange hangs: only after the errors of this file had their time.
constexpr auto kNcclGrace = 60s;
// After how long those who wait say for whom, and how often; at most a quarter of the timeout.
constexpr std::chrono::milliseconds kSlow = 20s;
constexpr const char* kTrouble = "trouble";
// Up to so many processes gather by broadcasts.
constexpr int64_t kFewProcesses = 8;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string failed_key(int64_t rank) { return fmt::format("failed/{}", rank); }
std::string alive_key(int64_t rank) { return fmt::format("alive/{}", rank); }
std::string waiting_key(int64_t rank, int64_t exchange) {
  return fmt::format("waiting/{}/{}", exchange, rank);
}

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// What is known of the others after a failed exchange.
struct Inquiry {
  std::vector<int64_t> silent;  // ranks that no longer answer
  std::string reason;           // what a process said before it left
  int64_t reason_of = -1;
  bool store_is_gone = false;
};

// The store. It is asked on a thread of its own and with a time limit: c10d's clients wait for ever
// when the process that holds it stands still.
class BoundedStore {
 public:
  explicit BoundedStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) {
    ask([key, value](c10d::Store& store) { store.set(key, bytes_of(value)); });
  }
  bool has(const std::string& key) {
    return ask([key](c10d::Store& store) { return store.check({key}); });
  }
  std::string get(const std::string& key) {
    const auto value = ask([key](c10d::Store& store) { return store.get(key); });
    return {value.begin(), value.end()};
  }

 private:
  template <class Question, class Answer = std::invoke_result_t<Question, c10d::Store&>>
  Answer ask(Question question) {
    if (*is_busy_) throw std::runtime_error("the store does not answer");
    *is_busy_ = true;
    auto task = std::packaged_task<Answer()>(
        [store = store_, is_busy = is_busy_, question = std::move(question)] {
          const auto free_again = std::shared_ptr<void>(nullptr, [&](void*) { *is_busy = false; });
          return question(*store);
        });
    auto answer = task.get_future();
    std::thread(std::move(task)).detach();
    if (answer.wait_for(kPatience) != std::future_status::ready)
      throw std::runtime_error("the store does not answer");
    return answer.get();
  }

  c10::intrusive_ptr<c10d::Store> store_;
  // whether it has still not answered the last question
  std::shared_ptr<std::atomic<bool>> is_busy_ = std::make_shared<std::atomic<bool>>(false);
};

// Each survivor says that it lives, then looks who else did.
Inquiry ask_around(BoundedStore& store, int64_t rank, int64_t size) {
  Inquiry found;
  try {
    store.set(alive_key(rank), "1");
    const auto end = std::chrono::steady_clock::now() + kInquiry;
    while (true) {
      found.silent.clear();
      for (int64_t other = 0; other < size; ++other) {
        if (other == rank) continue;
        if (store.has(failed_key(other))) {
          found.reason = store.get(failed_key(other));
          found.reason_of = other;
          found.silent.clear();  // they may not have had the time to answer
          return found;
        }
        if (!store.has(alive_key(other))) found.silent.push_back(other);
      }
      if (found.silent.empty() || std::chrono::steady_clock::now() > end) return found;
      std::this_thread::sleep_for(kPoll);
    }
  } catch (const std::exception&) {
    found.store_is_gone = true;
    return found;
  }
}

// Whether this process is the first on its machine, as far as its launcher says so.
bool is_first_of_machine(int64_t rank, int64_t size) {
  const auto here = launch_environment();
  return here.world_size == size && here.rank == rank && here.local_rank == 0;
}

std::shared_ptr<gloo::transport::Device> device_at(const std::string& address) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0')
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  if (address.empty()) return c10d::ProcessGroupGloo::createDefaultDevice();
  return c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

}  // namespace

struct ProcessGroup::Connection {
  explicit Connection(const c10::intrusive_ptr<c10d::Store>& with) : store(with), watched(with) {}

  BoundedStore store;
  c10::intrusive_ptr<c10d::Store> meeting_place;
  std::string address, channel;
  c10::intrusive_ptr<c10d::Backend> backend;
  int64_t rank = 0;
  int64_t size = 1;
  int64_t exchanges = 0;                    // that were started
  std::map<std::string, int64_t> channels;  // how many of each name were opened
  std::chrono::milliseconds timeout{};
  // an exchange failed, or this process said that it leaves
  std::atomic<bool> is_lost = false;

  // Returns when `work`, exchange number `number`, is done. Throws when it failed, when its time is
  // up, or when another process says that something is wrong with an exchange.
  void wait(c10d::Work& work, int64_t number) {
    const auto begin = std::chrono::steady_clock::now();
    const auto end = begin + timeout + 5s;
    const auto interval = std::min(kSlow, timeout / 4);
    for (auto complaint = begin + interval; true;) {
      try {
        work.wait(std::chrono::milliseconds(kGlance));
        return;
      } catch (const std::exception&) {
        if (work.isCompleted()) throw;
      }
      if (somebody_gave_up()) throw std::runtime_error("another process has given up");
      const auto now = std::chrono::steady_clock::now();
      if (now > end) throw std::runtime_error("the time is up");
      if (now < complaint) continue;
      complaint += interval;
      name_the_slow(number, std::chrono::duration_cast<std::chrono::seconds>(now - begin));
    }
  }

  // Those that wait say so in the store; a process that does not is the one they wait for.
  void name_the_slow(int64_t number, std::chrono::seconds waited) {
    try {
      store.set(channel + waiting_key(rank, number), "1");
      std::vector<int64_t> slow;
      for (int64_t other = 0; other < size; ++other)
        if (!store.has(channel + waiting_key(other, number))) slow.push_back(other);
      if (slow.empty() || slow.front() == rank) return;
      if (rank == (slow.front() == 0 ? 1 : 0))
        log_warning(fmt::format("Process{} {} of {} kept the others waiting for {} s.",
                                slow.size() == 1 ? "" : "es", fmt::join(slow, ", "), size,
                                waited.count()));
    } catch (const std::exception&) {  // the store is slow, too
    }
  }

  // A store that does not answer is no reason to give up before the time is up.
  bool somebody_gave_up() {
    try {
      return store.has(kTrouble);
    } catch (const std::exception&) {
      return false;
    }
  }

  // Lets those who wait look for the reason, too.
  void give_up() {
    is_lost = true;
    if (nccl) nccl->abort();
    store.set(kTrouble, "1");
  }

  // Last: its thread asks `watched`.
  BoundedStore watched;
  std::unique_ptr<NcclChannel> nccl;
};

ProcessGroup::ProcessGroup(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t size,
                           std::chrono::milliseconds timeout, const std::string& address,
                           const std::string& channel)
    : rank_(rank), size_(size), connection_(std::make_unique<Connection>(store)) {
  connection_->timeout = timeout;
  connection_->meeting_place = store;
  connection_->address = address;
  connection_->channel = channel;
  // What went wrong with one of several groups stands in the store they share.
  if (!channel.empty()) store = c10::make_intrusive<c10d::PrefixStore>(channel, store);
  connection_->rank = rank;
  connection_->size = size;
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  try {
    options->devices.push_back(device_at(address));
    connection_->backend =
        c10::make_intrusive<c10d::ProcessGroupGloo>(store, int(rank_), int(size_), options);
  } catch (const std::exception& error) {
    throw_lost("the connection of all processes", error.what());
  }
}

std::shared_ptr<ProcessGroup> ProcessGroup::alone(std::chrono::milliseconds timeout) {
  return std::make_shared<ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), 0, 1, timeout);
}

ProcessGroup::~ProcessGroup() {
  // Gloo's threads may wait for a process that hangs, and its destructor for them.
  if (connection_->is_lost) static_cast<void>(connection_->backend.release());
}

std::chrono::milliseconds ProcessGroup::timeout() const { return connection_->timeout; }

bool ProcessGroup::is_lost() const { return connection_->is_lost; }

std::shared_ptr<ProcessGroup> ProcessGroup::channel(const std::string& name) const {
  // What an earlier channel of that name has left in the store must not be found.
  const auto number = ++connection_->channels[name];
  const auto made = std::make_shared<ProcessGroup>(
      connection_->meeting_place, rank_, size_, connection_->timeout, connection_->address,
      number == 1 ? name : fmt::format("{}-{}", name, number));
  // A process that is connected and needs the channel no more must not leave before the others are.
  made->sum(torch::zeros({1}));
  if (connection_->nccl) made->use_nccl(connection_->nccl->device());
  return made;
}

bool ProcessGroup::has_nccl() const { return connection_->nccl != nullptr; }

void ProcessGroup::use_nccl(torch::Device device) {
  auto& here = *connection_;
  if (here.nccl && here.nccl->device() == device) return;
  try {
    here.nccl = std::make_unique<NcclChannel>(
        device::NcclOptions{
            c10::make_intrusive<c10d::PrefixStore>("nccl-" + here.channel, here.meeting_place),
            rank_, size_, device, here.timeout + kNcclGrace},
        [&here] { return here.is_lost || here.watched.has(kTrouble); });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_lost("the connection of all GPUs", error.what());
  }
}

// Without NCCL, what lies on a GPU is copied to the host and back.
bool ProcessGroup::goes_by_host(const torch::Tensor& value) const {
  return value.is_cuda() && !has_nccl();
}

void ProcessGroup::Pending::wait() {
  if (const auto wait = std::exchange(wait_, nullptr)) wait();
}

template <class Start>
ProcessGroup::Pending ProcessGroup::exchange(const char* what, const torch::Tensor& value,
                                             Start start) {
  const auto or_lost = [this, what](const auto& action) {
    try {
      return action();
    } catch (const std::exception& error) {
      throw_lost(what, error.what());
    }
  };
  if (connection_->is_lost) throw_lost(what, "the group was left");
  if (value.defined() && value.is_cuda()) {
    const auto work = or_lost([&] { return start(connection_->nccl->backend()); });
    return Pending([work, or_lost] { or_lost([&] { work->synchronize(); }); });
  }
  const auto work = or_lost([&] { return start(*connection_->backend); });
  const auto number = ++connection_->exchanges;
  return Pending(
      [this, work, number, or_lost] { or_lost([&] { connection_->wait(*work, number); }); });
}

ProcessGroup::Pending ProcessGroup::start_sum(torch::Tensor value) {
  if (goes_by_host(value)) {
    const auto host = value.cpu();
    return Pending([value, host, sum = start_sum(host)]() mutable {
      sum.wait();
      value.copy_(host);
    });
  }
  std::vector<torch::Tensor> values{value};
  return exchange("a sum over all processes", value,
                  [&](auto& all) { return all.allreduce(values); });
}

// c10d's gathering with Gloo takes the memory of `all` once more and copies it. Broadcasts write to
// their place, and are as fast or faster while the processes are few.
ProcessGroup::Pending ProcessGroup::start_gather(torch::Tensor all, torch::Tensor part) {
  if (goes_by_host(all)) {
    const auto host = torch::empty_like(all, torch::kCPU);
    return Pending([all, host, parts = start_gather(host, part.cpu())]() mutable {
      parts.wait();
      all.copy_(host);
    });
  }
  constexpr const char* kWhat = "a gathering of parts";
  const auto place = [&](int64_t rank) { return all.narrow(0, rank * part.numel(), part.numel()); };
  const bool is_in_place = place(rank_).data_ptr() == part.data_ptr();
  if (size_ > kFewProcesses || all.is_cuda()) {
    if (is_in_place && !all.is_cuda()) part = part.clone();
    // This name and the next are older than those that LibTorch 2.15 prefers; all versions have
    // them.
    return exchange(kWhat, all, [&](auto& group) { return group._allgather_base(all, part); });
  }
  if (!is_in_place) place(rank_).copy_(part);
  std::vector<Pending> parts;
  for (int64_t root = 0; root < size_; ++root) {
    std::vector<torch::Tensor> values{place(root)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    parts.push_back(
        exchange(kWhat, all, [&](auto& group) { return group.broadcast(values, options); }));
  }
  return Pending([parts = std::move(parts)]() mutable {
    for (auto& each : parts) each.wait();
  });
}

ProcessGroup::Pending ProcessGroup::start_all_to_all(torch::Tensor received, torch::Tensor sent) {
  if (goes_by_host(received)) {
    const auto host = torch::empty_like(received, torch::kCPU);
    return Pending([received, host, parts = start_all_to_all(host, sent.cpu())]() mutable {
      parts.wait();
      received.copy_(host);
    });
  }
  std::vector<int64_t> equal_parts;
  return exchange("an exchange of parts", received, [&](auto& group) {
    return group.alltoall_base(received, sent, equal_parts, equal_parts);
  });
}

void ProcessGroup::broadcast(torch::Tensor value, int64_t root) {
  if (goes_by_host(value)) {
    const auto host = value.cpu();
    broadcast(host, root);
    value.copy_(host);
    return;
  }
  std::vector<torch::Tensor> values{value};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  exchange("a broadcast", value, [&](auto& all) { return all.broadcast(values, options); }).wait();
}

std::vector<torch::Tensor> ProcessGroup::gather(const torch::Tensor& value) {
  if (goes_by_host(value)) {
    auto all = gather(value.cpu());
    for (auto& each : all) each = each.to(value.device());
    return all;
  }
  std::vector<torch::Tensor> own{value.contiguous()};
  std::vector<std::vector<torch::Tensor>> all(1);
  for (int64_t rank = 0; rank < size_; ++rank) all[0].push_back(torch::empty_like(own[0]));
  exchange("a gathering of values", own[0], [&](auto& group) {
    return group.allgather(all, own);
  }).wait();
  return std::move(all[0]);
}

std::vector<std::string> ProcessGroup::gather_bytes(const std::string& bytes) {
  const auto lengths = gather(torch::tensor({int64_t(bytes.size())}));
  int64_t longest = 0;
  for (const auto& length : lengths) longest = std::max(longest, length.item<int64_t>());
  auto padded = torch::zeros({std::max<int64_t>(longest, 1)}, torch::kByte);
  std::memcpy(padded.data_ptr(), bytes.data(), bytes.size());
  const auto all = gather(padded);
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < all.size(); ++rank)
    texts.emplace_back(static_cast<const char*>(all[rank].data_ptr()),
                       size_t(lengths[rank].item<int64_t>()));
  return texts;
}

void ProcessGroup::barrier() {
  exchange("a barrier", torch::Tensor(), [&](auto& all) { return all.barrier(); }).wait();
}

void ProcessGroup::fail(const std::string& reason) noexcept {
  if (connection_->is_lost) return;
  try {
    connection_->store.set(failed_key(rank_), first_line(reason));
    connection_->give_up();
    // The store may go with this process: the others need a moment to read it.
    const auto end = std::chrono::steady_clock::now() + kInquiry;
    for (int64_t other = 0; other < size_; ++other)
      while (other != rank_ && !connection_->store.has(alive_key(other)) &&
             std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(kPoll);
  } catch (const std::exception&) {
    // the store has gone with its process: the others learn that from their connections
  }
}

void ProcessGroup::throw_lost(const char* what, const std::string& reason) {
  try {
    connection_->give_up();
  } catch (const std::exception&) {  // the inquiry says what that means
  }
  const auto found = ask_around(connection_->store, rank_, size_);
  std::string who;
  if (found.reason_of >= 0)
    who = fmt::format("process {} failed: {}", found.reason_of, found.reason);
  else if (found.store_is_gone)
    who = "process 0, which holds the store, has ended or cannot be reached";
  else if (!found.silent.empty())
    who = fmt::format("process{} {} of {} ended, hangs or cannot be reached",
                      found.silent.size() == 1 ? "" : "es", fmt::join(found.silent, ", "), size_);
  else
    who = "all processes answer, but the exchange did not end";
  // One process says it to the user: the first that is left.
  int64_t speaker = 0;
  const auto is_lost = [&](int64_t rank) {
    return rank == found.reason_of || (rank == 0 && found.store_is_gone) ||
           std::find(found.silent.begin(), found.silent.end(), rank) != found.silent.end();
  };
  while (speaker < rank_ && is_lost(speaker)) ++speaker;
  // Without the store nobody knows who is left on other machines: there the first one speaks.
  if (found.store_is_gone && is_first_of_machine(rank_, size_)) speaker = rank_;
  throw Error("G-DIST-2", ErrorKind::training,
              fmt::format("process {}: {} failed: {} ({})", rank_, what, who, first_line(reason)),
              speaker != rank_
                  ? ""
                  : "Look at the output of that process. The run continues from its last "
                    "checkpoint when it is started again with --resume_from_checkpoint last.");
}

}  // namespace gradus
