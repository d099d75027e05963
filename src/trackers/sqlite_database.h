#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace gradus {

/// A value of a statement: null, a number or a text.
using SqlValue = std::variant<std::nullptr_t, int64_t, double, std::string>;

/// A SQLite file that other programs may use at the same time. All members throw `Error` G-TRACK-2
/// with SQLite's reason. Another process that holds the file is waited for, for some seconds.
/// Thread-safety: none.
class SqliteDatabase {
 public:
  /// What may be done with the file.
  enum class Access {
    write,  ///< The file and its folder are created where they are not there.
    read    ///< Nothing is created or changed. Writers wait while a statement runs.
  };

  /// Opens the file.
  explicit SqliteDatabase(const std::filesystem::path& file, Access access = Access::write);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  /// Runs one statement with its values and returns the rows.
  std::vector<std::vector<SqlValue>> run(const std::string& statement,
                                         const std::vector<SqlValue>& values = {});
  /// Adds a row: those of the columns that the table has. `verb` may be "INSERT OR REPLACE".
  void insert(const std::string& table, const std::vector<std::pair<std::string, SqlValue>>& row,
              const char* verb = "INSERT");
  /// The columns of a table; none when there is no such table. Valid until the next call.
  const std::set<std::string>& columns(const std::string& table);
  /// Runs `work` as one transaction: after an exception nothing of it is there.
  void transaction(const std::function<void()>& work);

 private:
  [[noreturn]] void fail(const std::string& what);
  /// The prepared statement of this text, ready for new values.
  sqlite3_stmt* prepare(const std::string& statement);
  /// Makes a statement that has run ready for the next time; throws what went wrong.
  void end_statement(sqlite3_stmt* statement, int answer);

  /// How a row with certain columns is added.
  struct Insert {
    sqlite3_stmt* statement = nullptr;
    std::vector<bool> has_column = {};  // by the row's values
  };
  Insert prepare_insert(const std::string& table,
                        const std::vector<std::pair<std::string, SqlValue>>& row, const char* verb);

  std::filesystem::path file_;
  sqlite3* handle_ = nullptr;
  std::map<std::string, sqlite3_stmt*> prepared_;
  std::map<std::string, std::set<std::string>> columns_;  // by table; none: not there yet
  std::map<std::string, Insert> inserts_;                 // by verb, table and columns
  std::string insert_key_;
};

}  // namespace gradus
