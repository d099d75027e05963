#include "data/sources/json_scan.h"

namespace gradus::sources {

void JsonScanner::begin_row() {
  if (at_row_level() && !row_start_) row_start_ = at_;
}

void JsonScanner::end_row(int64_t end) {
  in_scalar_ = false;
  if (!row_start_ || depth_ != rows_depth_) return;
  emit_(*row_start_, end);
  row_start_.reset();
}

void JsonScanner::in_string(char c) {
  // A key that is longer than the one looked for need not be kept.
  if (reading_key_ && (c != '"' || escaped_) && key_.size() <= field_->size()) key_ += c;
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    in_string_ = false;
    reading_key_ = false;
    end_row(at_ + 1);
  }
}

void JsonScanner::open_bracket(char c) {
  if (!started_) {
    started_ = true;
    if (field_ && c != '{')
      trouble_ = "expected an object with the key \"" + *field_ + "\", found a list";
    if (!field_ && c == '[') {
      in_rows_ = true;
      rows_depth_ = 1;
      depth_ = 1;
      return;
    }
    expect_key_ = field_.has_value();
  } else if (expect_rows_) {
    expect_rows_ = false;
    if (c == '[') {
      in_rows_ = true;
      rows_depth_ = 2;
      depth_ = 2;
      return;
    }
    trouble_ = "\"" + *field_ + "\" is not a list";
  }
  begin_row();
  ++depth_;
}

void JsonScanner::close_bracket() {
  end_row(at_);
  if (--depth_ < 0) {
    trouble_ = "a closing bracket without an opening one";
  } else if (in_rows_ && depth_ < rows_depth_) {
    in_rows_ = false;
    done_ = true;
  } else {
    end_row(at_ + 1);
  }
}

void JsonScanner::structural(char c) {
  switch (c) {
    case ' ':
    case '\t':
    case '\n':
    case '\r':
      if (in_scalar_) end_row(at_);
      return;
    case '"':
      started_ = true;
      begin_row();
      in_string_ = true;
      if (expect_key_ && depth_ == 1) {
        reading_key_ = true;
        expect_key_ = false;
        key_.clear();
      }
      return;
    case '{':
    case '[': open_bracket(c); return;
    case '}':
    case ']': close_bracket(); return;
    case ',':
      if (in_scalar_) end_row(at_);
      if (field_ && depth_ == 1) expect_key_ = true;
      return;
    case ':':
      if (field_ && depth_ == 1) expect_rows_ = key_ == *field_;
      return;
    default:
      started_ = true;
      if (expect_rows_) trouble_ = "\"" + *field_ + "\" is not a list";
      begin_row();
      in_scalar_ = true;
  }
}

void JsonScanner::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (done_ || trouble_) return;
    if (in_string_)
      in_string(c);
    else
      structural(c);
    ++at_;
  }
}

std::optional<std::string> JsonScanner::finish() {
  if (trouble_ || done_) return trouble_;
  if (in_scalar_) end_row(at_);
  if (in_string_ || depth_ > 0 || row_start_)
    return "the text ends before its brackets and quotes are closed";
  if (field_ && started_) return "there is no key \"" + *field_ + "\" with a list at the top";
  return std::nullopt;
}

}  // namespace gradus::sources
