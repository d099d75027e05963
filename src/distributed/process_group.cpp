#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/distributed/process_group.h>
// Without this the header of Gloo's group is empty.
#define USE_C10D_GLOO 1
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <cstring>
#include <thread>

namespace gradus {
namespace {

using namespace std::chrono_literals;

// How long a process looks for the reason after an exchange has failed.
constexpr auto kInquiry = 3s;
constexpr auto kPoll = 50ms;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string failed_key(int64_t rank) { return fmt::format("failed/{}", rank); }
std::string alive_key(int64_t rank) { return fmt::format("alive/{}", rank); }

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// What is known of the others after a failed exchange.
struct Inquiry {
  std::vector<int64_t> silent;  // ranks that no longer answer
  std::string reason;           // what a process said before it left
  int64_t reason_of = -1;
  bool store_is_gone = false;
};

// Each survivor says that it lives, then looks who else did.
Inquiry ask_around(c10d::Store& store, int64_t rank, int64_t size) {
  Inquiry found;
  try {
    store.set(alive_key(rank), bytes_of("1"));
    const auto end = std::chrono::steady_clock::now() + kInquiry;
    while (true) {
      found.silent.clear();
      for (int64_t other = 0; other < size; ++other) {
        if (other == rank) continue;
        if (store.check({failed_key(other)})) {
          const auto said = store.get(failed_key(other));
          found.reason.assign(said.begin(), said.end());
          found.reason_of = other;
          return found;
        }
        if (!store.check({alive_key(other)})) found.silent.push_back(other);
      }
      if (found.silent.empty() || std::chrono::steady_clock::now() > end) return found;
      std::this_thread::sleep_for(kPoll);
    }
  } catch (const std::exception&) {
    found.store_is_gone = true;
    return found;
  }
}

}  // namespace

struct ProcessGroup::Connection {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Backend> backend;
};

ProcessGroup::ProcessGroup(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t size,
                           std::chrono::milliseconds timeout)
    : rank_(rank), size_(size), connection_(std::make_unique<Connection>()) {
  connection_->store = std::move(store);
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  try {
    connection_->backend = c10::make_intrusive<c10d::ProcessGroupGloo>(
        connection_->store, int(rank_), int(size_), options);
  } catch (const std::exception& error) {
    throw_lost("the connection of all processes", error.what());
  }
}

ProcessGroup::~ProcessGroup() = default;

void ProcessGroup::Pending::wait() {
  if (const auto wait = std::exchange(wait_, nullptr)) wait();
}

template <class Start>
ProcessGroup::Pending ProcessGroup::exchange(const char* what, Start start) {
  const auto or_lost = [this, what](const auto& action) {
    try {
      return action();
    } catch (const std::exception& error) {
      throw_lost(what, error.what());
    }
  };
  const auto work = or_lost([&] { return start(*connection_->backend); });
  return Pending([work, or_lost] { or_lost([&] { work->wait(); }); });
}

ProcessGroup::Pending ProcessGroup::start_sum(torch::Tensor value) {
  std::vector<torch::Tensor> values{std::move(value)};
  return exchange("a sum over all processes", [&](auto& all) { return all.allreduce(values); });
}

void ProcessGroup::broadcast(torch::Tensor value, int64_t root) {
  std::vector<torch::Tensor> values{std::move(value)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  exchange("a broadcast", [&](auto& all) { return all.broadcast(values, options); }).wait();
}

std::vector<torch::Tensor> ProcessGroup::gather(const torch::Tensor& value) {
  std::vector<torch::Tensor> own{value.contiguous()};
  std::vector<std::vector<torch::Tensor>> all(1);
  for (int64_t rank = 0; rank < size_; ++rank) all[0].push_back(torch::empty_like(own[0]));
  exchange("a gathering of values", [&](auto& group) { return group.allgather(all, own); }).wait();
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
  exchange("a barrier", [&](auto& all) { return all.barrier(); }).wait();
}

void ProcessGroup::fail(const std::string& reason) noexcept {
  try {
    connection_->store->set(failed_key(rank_), bytes_of(first_line(reason)));
  } catch (const std::exception&) {
    // the store has gone with its process: the others learn that from their connections
  }
}

void ProcessGroup::throw_lost(const char* what, const std::string& reason) {
  const auto found = ask_around(*connection_->store, rank_, size_);
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
  throw Error("G-DIST-2", ErrorKind::training,
              fmt::format("process {}: {} failed: {} ({})", rank_, what, who, first_line(reason)),
              "Look at the output of that process. The run continues from its last checkpoint when "
              "it is started again with --resume_from_checkpoint last.");
}

}  // namespace gradus
