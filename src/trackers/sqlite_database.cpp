#include "trackers/sqlite_database.h"

#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <sqlite3.h>

#include "core/open_file.h"

namespace gradus {
namespace {

/// The text of `value` is not copied: it must last until the statement has run.
int bind_value(sqlite3_stmt* statement, int at, const SqlValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value))
    return ::sqlite3_bind_int64(statement, at, *number);
  if (const auto* number = std::get_if<double>(&value))
    return ::sqlite3_bind_double(statement, at, *number);
  if (const auto* text = std::get_if<std::string>(&value))
    return ::sqlite3_bind_text64(statement, at, text->data(), text->size(), SQLITE_STATIC,
                                 SQLITE_UTF8);
  return ::sqlite3_bind_null(statement, at);
}

SqlValue column_value(sqlite3_stmt* statement, int at) {
  switch (::sqlite3_column_type(statement, at)) {
    case SQLITE_NULL: return nullptr;
    case SQLITE_INTEGER: return int64_t(::sqlite3_column_int64(statement, at));
    case SQLITE_FLOAT: return ::sqlite3_column_double(statement, at);
    default: {
      const auto* bytes = static_cast<const char*>(::sqlite3_column_blob(statement, at));
      const int size = ::sqlite3_column_bytes(statement, at);
      return bytes != nullptr ? std::string(bytes, size_t(size)) : std::string();
    }
  }
}

/// Longer than any text of a study or a tracker.
constexpr int kLongestValue = 64 << 20;

/// A file may come from strangers: tables are used, views and triggers, which are programs and may
/// never end, do not run, and no expression makes a value of gigabytes.
void forbid_code(sqlite3* handle) {
  for (const int option : {SQLITE_DBCONFIG_ENABLE_VIEW, SQLITE_DBCONFIG_ENABLE_TRIGGER,
                           SQLITE_DBCONFIG_TRUSTED_SCHEMA})
    ::sqlite3_db_config(handle, option, 0, nullptr);
  ::sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kLongestValue);
}

/// SQLite opens the file and what lies beside it without a look at their kind; a FIFO would make it
/// wait for ever.
void check_database_files(const std::filesystem::path& file) {
  for (const char* end : {"", "-journal", "-wal", "-shm"}) {
    const auto part = std::filesystem::path(file.string() + end);
    std::error_code unknown;
    const auto kind = std::filesystem::status(part, unknown).type();
    using Kind = std::filesystem::file_type;
    if (kind == Kind::fifo || kind == Kind::socket || kind == Kind::character ||
        kind == Kind::block)
      check_regular_file(part);
  }
}

}  // namespace

SqliteDatabase::SqliteDatabase(const std::filesystem::path& file, Access access) : file_(file) {
  const bool writes = access == Access::write;
  if (writes && file.has_parent_path()) make_directory(file.parent_path());
  check_database_files(file);
  const int flags = (writes ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY) |
                    SQLITE_OPEN_NOMUTEX;
  if (::sqlite3_open_v2(file.c_str(), &handle_, flags, nullptr) != SQLITE_OK) {
    const std::string reason = handle_ != nullptr ? ::sqlite3_errmsg(handle_) : "no memory";
    ::sqlite3_close(handle_);
    throw Error("G-TRACK-2", ErrorKind::io, "cannot open " + file.string() + ": " + reason);
  }
  ::sqlite3_busy_timeout(handle_, 5000);
  forbid_code(handle_);
}

SqliteDatabase::~SqliteDatabase() {
  for (const auto& [text, statement] : prepared_) ::sqlite3_finalize(statement);
  ::sqlite3_close(handle_);
}

void SqliteDatabase::fail(const std::string& what) {
  throw Error("G-TRACK-2", ErrorKind::io,
              "cannot " + what + " " + file_.string() + ": " + ::sqlite3_errmsg(handle_));
}

sqlite3_stmt* SqliteDatabase::prepare(const std::string& statement) {
  auto& prepared = prepared_[statement];
  if (prepared == nullptr &&
      ::sqlite3_prepare_v2(handle_, statement.c_str(), int(statement.size()) + 1, &prepared,
                           nullptr) != SQLITE_OK)
    fail("use");
  return prepared;
}

std::vector<std::vector<SqlValue>> SqliteDatabase::run(const std::string& statement,
                                                       const std::vector<SqlValue>& values) {
  auto* prepared = prepare(statement);
  for (size_t i = 0; i < values.size(); ++i)
    if (bind_value(prepared, int(i) + 1, values[i]) != SQLITE_OK) fail("use");
  std::vector<std::vector<SqlValue>> rows;
  int answer = 0;
  while ((answer = ::sqlite3_step(prepared)) == SQLITE_ROW) {
    auto& row = rows.emplace_back();
    for (int i = 0; i < ::sqlite3_column_count(prepared); ++i)
      row.push_back(column_value(prepared, i));
  }
  end_statement(prepared, answer);
  return rows;
}

void SqliteDatabase::end_statement(sqlite3_stmt* statement, int answer) {
  const std::string reason = answer == SQLITE_DONE ? "" : ::sqlite3_errmsg(handle_);
  ::sqlite3_reset(statement);
  ::sqlite3_clear_bindings(statement);
  if (answer != SQLITE_DONE)
    throw Error("G-TRACK-2", ErrorKind::io, "cannot use " + file_.string() + ": " + reason);
}

void SqliteDatabase::insert(const std::string& table,
                            const std::vector<std::pair<std::string, SqlValue>>& row,
                            const char* verb) {
  // A run adds thousands of rows with the same columns.
  insert_key_.assign(verb).append(" ").append(table);
  for (const auto& [name, value] : row) insert_key_.append(" ").append(name);
  auto& known = inserts_[insert_key_];
  if (known.statement == nullptr) known = prepare_insert(table, row, verb);
  int at = 0;
  for (size_t i = 0; i < row.size(); ++i)
    if (known.has_column[i] && bind_value(known.statement, ++at, row[i].second) != SQLITE_OK)
      fail("use");
  end_statement(known.statement, ::sqlite3_step(known.statement));
}

SqliteDatabase::Insert SqliteDatabase::prepare_insert(
    const std::string& table, const std::vector<std::pair<std::string, SqlValue>>& row,
    const char* verb) {
  const auto& there = columns(table);
  Insert made;
  std::string names, marks;
  for (const auto& [name, value] : row) {
    made.has_column.push_back(there.contains(name));
    if (!made.has_column.back()) continue;
    names += (names.empty() ? "\"" : ", \"") + name + "\"";
    marks += marks.empty() ? "?" : ", ?";
  }
  made.statement =
      prepare(std::string(verb) + " INTO " + table + " (" + names + ") VALUES (" + marks + ")");
  return made;
}

const std::set<std::string>& SqliteDatabase::columns(const std::string& table) {
  auto& names = columns_[table];
  if (names.empty())  // also where the table was not there the last time
    for (const auto& row : run("SELECT name FROM pragma_table_info(?)", {table}))
      names.insert(std::get<std::string>(row[0]));
  return names;
}

void SqliteDatabase::transaction(const std::function<void()>& work) {
  run("BEGIN IMMEDIATE");
  try {
    work();
    run("COMMIT");
  } catch (...) {
    // SQLite may have rolled back already, after a full disk for one.
    if (::sqlite3_get_autocommit(handle_) == 0)
      ::sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
}

}  // namespace gradus
