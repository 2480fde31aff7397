//===- CodeNestingLimit.cpp - Code records read without parsing -----------===//
//
// LibTorch's parser recurses over brackets and blocks, and its compiler over
// chains of operators, without a bound; a long chain overflows the stack as
// surely as deep brackets do. So both count as nesting.
//
//===----------------------------------------------------------------------===//

#include "koila/Target/PyTorchArchive/CodeNestingLimit.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>

using namespace koila::torchscript;
using llvm::StringRef;

static bool isWordChar(char c) { return llvm::isAlnum(c) || c == '_'; }

namespace {
class CodeReader {
public:
  explicit CodeReader(StringRef code) : rest(code) {}

  CodeSummary read();

private:
  void startLine();
  void skipText();
  void readWord();
  /// One more step of the expression at the current bracket.
  void deepen() {
    ++links.back();
    ++depth;
    measure();
  }
  void forgetChain() {
    depth -= links.back();
    links.back() = 0;
  }
  void measure() {
    summary.nesting =
        std::max<unsigned>(summary.nesting, depth + blocks.size());
  }
  bool drop(size_t count) {
    rest = rest.drop_front(std::min(count, rest.size()));
    return !rest.empty();
  }

  StringRef rest;
  /// Indentation of the enclosing blocks.
  llvm::SmallVector<size_t> blocks;
  /// Length of the chain around each open bracket, the bracket included.
  llvm::SmallVector<unsigned> links{0};
  /// The sum of `links`.
  unsigned depth = 0;
  /// The words of a dotted name so far.
  llvm::SmallVector<StringRef, 8> name;
  CodeSummary summary;
};
} // namespace

/// Takes indentation off. Lines within brackets go on.
void CodeReader::startLine() {
  if (links.size() > 1)
    return;
  forgetChain();
  size_t indent =
      rest.find_if_not([](char c) { return c == ' ' || c == '\t'; });
  if (indent == StringRef::npos || rest[indent] == '\n' || rest[indent] == '#')
    return;
  while (!blocks.empty() && blocks.back() >= indent)
    blocks.pop_back();
  if (indent > 0)
    blocks.push_back(indent);
  measure();
  drop(indent);
}

void CodeReader::skipText() {
  char quote = rest.front();
  char tripled[] = {quote, quote, quote};
  StringRef end = rest.take_front(1);
  if (rest.starts_with(StringRef(tripled, 3)))
    end = rest.take_front(3);
  drop(end.size());
  while (!rest.empty() && !rest.starts_with(end))
    // An unfinished text ends with its line, as LibTorch's lexer has it.
    if (end.size() == 1 && rest.front() == '\n')
      return;
    else
      drop(rest.front() == '\\' ? 2 : 1);
  drop(end.size());
}

void CodeReader::readWord() {
  StringRef word = rest.take_while(isWordChar);
  drop(word.size());
  summary.words.insert(word);
  name.push_back(word);
  if (name.size() == 3 && name[0] == "ops" && rest.starts_with("("))
    summary.operators.insert((name[1] + "::" + name[2]).str());
  size_t size = name.size();
  if (size >= 4 && name[size - 4] == "torch" && name[size - 3] == "classes")
    summary.customClasses.insert((name[size - 2] + "." + name[size - 1]).str());
  // Operators that are words: `not not not x` recurses as `- - - x` does.
  if (word == "not" || word == "and" || word == "or" || word == "if" ||
      word == "else" || word == "in" || word == "is" || word == "lambda")
    deepen();
}

CodeSummary CodeReader::read() {
  startLine();
  while (!rest.empty()) {
    char c = rest.front();
    if (isWordChar(c)) {
      readWord();
      continue;
    }
    if (c != '.')
      name.clear();
    if (c == '"' || c == '\'') {
      skipText();
      continue;
    }
    drop(1);
    switch (c) {
    case '#':
      rest = rest.drop_until([](char c) { return c == '\n'; });
      break;
    case '\n':
      startLine();
      break;
    case '(':
    case '[':
    case '{':
      deepen();
      links.push_back(0);
      break;
    case ')':
    case ']':
    case '}':
      forgetChain();
      if (links.size() > 1)
        links.pop_back();
      break;
    case ',':
    case ';':
      forgetChain();
      break;
    case ' ':
    case '\t':
    case '\r':
      break;
    default:
      deepen();
    }
  }
  return std::move(summary);
}

CodeSummary koila::torchscript::readCode(StringRef code) {
  return CodeReader(code).read();
}

unsigned koila::torchscript::getTypeNesting(StringRef type) {
  unsigned depth = 0, deepest = 0;
  for (char c : type) {
    if (c == '[' || c == '(')
      deepest = std::max(deepest, ++depth);
    else if ((c == ']' || c == ')') && depth > 0)
      --depth;
  }
  return deepest;
}
