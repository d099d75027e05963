// Which readers start threads: only those that were asked to. A library's own threads would be
// hidden from the thread sanitizer.
#include <dlfcn.h>
#include <gradus/data/sources.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <thread>

#include "temporary_folder.h"

namespace {

thread_local int64_t threads_started = 0;  // by this thread

}  // namespace

// Stands before the system's function of this name in this program, for the libraries too.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*work)(void*), void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  ++threads_started;
  return real(thread, attributes, work, argument);
}

namespace gradus {
namespace {

const std::filesystem::path kThreadFiles =
    std::filesystem::path(GRADUS_SOURCE_DIR) / "tests/parity/data/sources";

template <class Work>
int64_t started_by(Work work) {
  const auto before = threads_started;
  work();
  return threads_started - before;
}

void read_everything(const std::string& file, int64_t threads) {
  const auto dataset = load_dataset(file, {.skip_bad_rows = 1, .threads = threads});
  for (int64_t i = 0; i < dataset->size(); ++i) dataset->get(i);
  const auto stream = stream_dataset(file, {.skip_bad_rows = 1, .threads = threads});
  while (stream->next()) stream->load_state(stream->save_state());
}

TEST(ReaderThreads, AreCountedHere) {
  EXPECT_EQ(started_by([] { std::thread([] {}).join(); }), 1);
}

TEST(ReaderThreads, CsvStartsNone) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  const TemporaryFolder folder;
  std::string text = "a,b\n";
  while (text.size() < size_t{6} << 20)
    text += std::to_string(text.size()) + ",\"some\ntext " + std::string(2000, 'x') + "\"\n";
  const auto large = folder.write("large.csv", text);
  for (const int64_t threads : {0, 4}) {
    EXPECT_EQ(started_by([&] { load_dataset(large, {.threads = threads}); }), 0);
    EXPECT_EQ(started_by([&] {
                for (const auto stream = stream_dataset(large, {.threads = threads});
                     stream->next();) {
                }
              }),
              0);
    EXPECT_EQ(started_by([&] { read_everything((kThreadFiles / "rows.csv").string(), threads); }),
              0);
  }
}

TEST(ReaderThreads, ArrowStartsNone) {
  if (!arrow_available()) GTEST_SKIP() << "built without Arrow";
  for (const auto* name : {"rows.parquet", "more.parquet", "rows_stream.arrow", "rows_file.arrow",
                           "saved", "rows.csv.gz"})
    EXPECT_EQ(started_by([&] { read_everything((kThreadFiles / name).string(), 4); }), 0) << name;
}

TEST(ReaderThreads, TextHasThoseAskedFor) {
  const auto file = (kThreadFiles / "rows.jsonl").string();
  EXPECT_EQ(started_by([&] { load_dataset(file, {.threads = 1}); }), 0);
  EXPECT_EQ(started_by([&] { load_dataset(file, {.threads = 3}); }), 3);
}

}  // namespace
}  // namespace gradus
