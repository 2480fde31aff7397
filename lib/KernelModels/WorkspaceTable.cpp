//===- WorkspaceTable.cpp - Where the workspace rules hold ----------------===//

#include "koila/KernelModels/WorkspaceTable.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace koila;
using llvm::StringRef;

/// Workspaces.json.
static constexpr llvm::StringLiteral kShipped =
#include "Workspaces.inc"
    ;

static llvm::Error makeError(const llvm::Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

static bool matchAny(const NamePatterns &patterns, StringRef name) {
  if (patterns.empty())
    return true;
  return llvm::any_of(patterns, [&](const std::string &pattern) {
    // readPatterns has seen that it is one.
    return llvm::cantFail(llvm::GlobPattern::create(pattern)).match(name);
  });
}

bool WorkspaceRow::match(const WorkspaceKey &key) const {
  return key.threads >= leastThreads &&
         (!mostThreads || key.threads <= *mostThreads) &&
         matchAny(op, key.op) && matchAny(dtype, key.dtype) &&
         matchAny(memoryFormat, key.memoryFormat) && matchAny(isa, key.isa) &&
         matchAny(torch, key.torch);
}

static StringRef getTrustName(Trust trust) {
  switch (trust) {
  case Trust::Exact:
    return "exact";
  case Trust::UpperBound:
    return "bound";
  case Trust::Unknown:
    return "unknown";
  }
  llvm_unreachable("all cases are above");
}

llvm::json::Value WorkspaceRow::toJSON() const {
  llvm::json::Object row;
  auto add = [&](StringRef key, const NamePatterns &patterns) {
    if (!patterns.empty())
      row[key] = llvm::json::Array(patterns);
  };
  add("op", op);
  add("dtype", dtype);
  add("memory_format", memoryFormat);
  add("isa", isa);
  add("torch", torch);
  if (leastThreads != 1 || mostThreads)
    row["threads"] = llvm::json::Array{
        leastThreads, mostThreads ? llvm::json::Value(*mostThreads)
                                  : llvm::json::Value(nullptr)};
  row["figure"] = getTrustName(trust);
  if (!why.empty())
    row["why"] = why;
  if (!source.empty())
    row["source"] = source;
  if (calls)
    row["calls"] = calls;
  return row;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

static bool readPatterns(const llvm::json::Value &value, llvm::json::Path path,
                         NamePatterns &patterns) {
  if (!fromJSON(value, patterns, path))
    return false;
  if (patterns.empty())
    path.report("expected a name at least; leave the key out for all");
  for (auto [index, pattern] : llvm::enumerate(patterns))
    if (auto glob = llvm::GlobPattern::create(pattern); !glob) {
      llvm::consumeError(glob.takeError());
      path.index(index).report("expected a name, in which * stands for any "
                               "letters");
      return false;
    }
  return !patterns.empty();
}

static bool readThreads(const llvm::json::Value &value, llvm::json::Path path,
                        WorkspaceRow &row) {
  const llvm::json::Array *pair = value.getAsArray();
  auto least = pair && pair->size() == 2 ? (*pair)[0].getAsInteger()
                                         : std::optional<int64_t>();
  if (!least || *least < 1) {
    path.report("expected [least, most], both included, most may be null");
    return false;
  }
  row.leastThreads = *least;
  if ((*pair)[1].kind() == llvm::json::Value::Null)
    return true;
  row.mostThreads = (*pair)[1].getAsInteger();
  if (!row.mostThreads || *row.mostThreads < *least) {
    path.index(1).report("expected null or a number not below the first");
    return false;
  }
  return true;
}

static bool readTrust(const llvm::json::Value &value, llvm::json::Path path,
                      Trust &trust) {
  auto found =
      llvm::StringSwitch<std::optional<Trust>>(value.getAsString().value_or(""))
          .Case("exact", Trust::Exact)
          .Case("bound", Trust::UpperBound)
          .Case("unknown", Trust::Unknown)
          .Default(std::nullopt);
  if (!found)
    path.report("expected exact, bound or unknown");
  trust = found.value_or(Trust::Unknown);
  return found.has_value();
}

static bool readRow(const llvm::json::Value &value, llvm::json::Path path,
                    WorkspaceRow &row) {
  const llvm::json::Object *object = value.getAsObject();
  if (!object) {
    path.report("expected a row, an object");
    return false;
  }
  bool hasFigure = false;
  for (const auto &[key, entry] : *object) {
    llvm::json::Path place = path.field(key);
    bool good;
    if (key == "op")
      good = readPatterns(entry, place, row.op);
    else if (key == "dtype")
      good = readPatterns(entry, place, row.dtype);
    else if (key == "memory_format")
      good = readPatterns(entry, place, row.memoryFormat);
    else if (key == "isa")
      good = readPatterns(entry, place, row.isa);
    else if (key == "torch")
      good = readPatterns(entry, place, row.torch);
    else if (key == "threads")
      good = readThreads(entry, place, row);
    else if (key == "figure")
      good = hasFigure = readTrust(entry, place, row.trust);
    else if (key == "why")
      good = fromJSON(entry, row.why, place);
    else if (key == "source")
      good = fromJSON(entry, row.source, place);
    else if (key == "calls")
      good = fromJSON(entry, row.calls, place);
    else {
      place.report("unknown key");
      good = false;
    }
    if (!good)
      return false;
  }
  if (!hasFigure || row.op.empty()) {
    path.report("a row needs 'op' and 'figure'");
    return false;
  }
  if (row.trust != Trust::Exact && row.why.empty()) {
    path.report("a row that is not exact needs 'why', for the report");
    return false;
  }
  return true;
}

llvm::Expected<WorkspaceTable> WorkspaceTable::parse(StringRef json) {
  auto value = llvm::json::parse(json);
  if (!value)
    return value.takeError();
  llvm::json::Path::Root root("table");
  llvm::json::Path path(root);
  WorkspaceTable table;
  auto read = [&]() {
    const llvm::json::Object *object = value->getAsObject();
    if (!object) {
      path.report("expected an object with 'schema' and 'rows'");
      return false;
    }
    for (const auto &[key, entry] : *object)
      if (key != "schema" && key != "rows") {
        path.field(key).report("unknown key");
        return false;
      }
    if (object->getInteger("schema") != 1) {
      path.field("schema").report("expected 1, the schema that koila knows");
      return false;
    }
    const llvm::json::Array *rows = object->getArray("rows");
    if (!rows) {
      path.field("rows").report("expected a list of rows");
      return false;
    }
    for (const auto &[index, entry] : llvm::enumerate(*rows)) {
      WorkspaceRow row;
      if (!readRow(entry, path.field("rows").index(index), row))
        return false;
      table.add(std::move(row));
    }
    return true;
  };
  if (!read())
    return root.getError();
  return table;
}

llvm::Expected<WorkspaceTable> WorkspaceTable::load(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!buffer)
    return makeError("cannot read '" + path +
                     "': " + buffer.getError().message());
  auto table = parse((*buffer)->getBuffer());
  if (!table)
    return makeError("'" + path + "' is no table of workspaces: " +
                     llvm::toString(table.takeError()));
  llvm::append_range(table->rows, getShipped().rows);
  return table;
}

const WorkspaceTable &WorkspaceTable::getShipped() {
  static const WorkspaceTable table = llvm::cantFail(parse(kShipped));
  return table;
}

WorkspaceTable WorkspaceTable::trustAll() {
  WorkspaceTable table;
  table.add({});
  return table;
}

//===----------------------------------------------------------------------===//
// Use
//===----------------------------------------------------------------------===//

const WorkspaceRow *WorkspaceTable::find(const WorkspaceKey &key) const {
  auto found = llvm::find_if(
      rows, [&](const WorkspaceRow &row) { return row.match(key); });
  return found == rows.end() ? nullptr : &*found;
}

llvm::json::Value WorkspaceTable::toJSON() const {
  llvm::json::Array list;
  for (const WorkspaceRow &row : rows)
    list.push_back(row.toJSON());
  return llvm::json::Object{{"schema", 1}, {"rows", std::move(list)}};
}
