//===- DimExpr.cpp - Integer expressions over symbols ---------------------===//

#include "koila/Dialect/Koila/IR/Koila.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <numeric>

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Symbols
//===----------------------------------------------------------------------===//

DimSymbol DimSymbol::get(MLIRContext *context, StringRef name,
                         SymbolKind kind) {
  if (kind == SymbolKind::Named)
    return cast<DimSymbol>(Attribute(StringAttr::get(context, name)));
  return cast<DimSymbol>(Attribute(LocalSymbolAttr::get(context, name, kind)));
}

bool DimSymbol::classof(Attribute attr) {
  return isa<StringAttr, LocalSymbolAttr>(attr);
}

StringRef DimSymbol::getName() const {
  if (auto local = dyn_cast<LocalSymbolAttr>(*this))
    return local.getName();
  return cast<StringAttr>(*this).getValue();
}

SymbolKind DimSymbol::getKind() const {
  auto local = dyn_cast<LocalSymbolAttr>(*this);
  return local ? local.getKind() : SymbolKind::Named;
}

//===----------------------------------------------------------------------===//
// Spelling and order
//===----------------------------------------------------------------------===//

static void printAtom(llvm::raw_ostream &os, Attribute atom) {
  if (auto symbol = dyn_cast<DimSymbol>(atom)) {
    os << symbol.getName();
    return;
  }
  auto call = cast<DimAtomAttr>(atom);
  os << call.getFunction().getValue() << '(';
  DimExpr(call.getLhs()).print(os);
  os << ", ";
  DimExpr(call.getRhs()).print(os);
  os << ')';
}

static std::string spell(ArrayAttr monomial) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::interleave(
      monomial, os, [&](Attribute atom) { printAtom(os, atom); }, "*");
  return text;
}

static std::string spell(Attribute atom) {
  std::string text;
  llvm::raw_string_ostream os(text);
  printAtom(os, atom);
  return text;
}

static void appendKinds(Attribute atom, std::string &key) {
  if (auto symbol = dyn_cast<DimSymbol>(atom)) {
    key += static_cast<char>('0' + static_cast<int>(symbol.getKind()));
    return;
  }
  for (DimExpr side : {DimExpr(cast<DimAtomAttr>(atom).getLhs()),
                       DimExpr(cast<DimAtomAttr>(atom).getRhs())})
    side.forEachSymbol([&](DimSymbol symbol) { appendKinds(symbol, key); });
}

/// What things are ordered by: the spelling, and where that is the same the
/// kinds of the symbols. No name has the character between the two.
static std::string getKey(std::string text, ArrayRef<Attribute> atoms) {
  text += '\0';
  for (Attribute atom : atoms)
    appendKinds(atom, text);
  return text;
}

static bool isBefore(DimExpr lhs, DimExpr rhs) {
  auto key = [](DimExpr expr) {
    std::string key = getKey(expr.str(), {});
    expr.forEachSymbol([&](DimSymbol symbol) { appendKinds(symbol, key); });
    return key;
  };
  return key(lhs) < key(rhs);
}

namespace {
/// Terms on the way to a normal form. Higher degrees come first, then
/// spelling decides, so that printing does not depend on pointers.
class TermList {
public:
  explicit TermList(MLIRContext *context) : context(context) {}

  void add(ArrayAttr monomial, int64_t coefficient) {
    for (auto &[known, sum] : terms)
      if (known == monomial) {
        // An overflow saturates to a value that no tensor has.
        if (llvm::AddOverflow(sum, coefficient, sum))
          sum = coefficient < 0 ? std::numeric_limits<int64_t>::min()
                                : std::numeric_limits<int64_t>::max();
        return;
      }
    terms.emplace_back(monomial, coefficient);
  }
  void add(DimExprAttr expr, int64_t scale = 1) {
    for (auto [coefficient, monomial] :
         llvm::zip_equal(expr.getCoefficients(), expr.getMonomials()))
      add(monomial, saturatingMul(coefficient, scale));
  }
  DimExprAttr build() {
    llvm::erase_if(terms, [](auto &term) { return term.second == 0; });
    if (terms.size() == 1)
      return DimExprAttr::get(context, terms.front().second,
                              terms.front().first);
    llvm::SmallVector<std::pair<std::string, unsigned>> order;
    for (auto [index, term] : llvm::enumerate(terms))
      order.emplace_back(getKey(spell(term.first), term.first.getValue()),
                         index);
    llvm::sort(order, [&](const auto &lhs, const auto &rhs) {
      size_t left = terms[lhs.second].first.size();
      size_t right = terms[rhs.second].first.size();
      return left != right ? left > right : lhs.first < rhs.first;
    });
    SmallVector<int64_t> coefficients;
    SmallVector<ArrayAttr> monomials;
    for (auto &[text, index] : order) {
      monomials.push_back(terms[index].first);
      coefficients.push_back(terms[index].second);
    }
    return DimExprAttr::get(context, coefficients, monomials);
  }
  static int64_t saturatingMul(int64_t lhs, int64_t rhs) {
    int64_t result;
    if (llvm::MulOverflow(lhs, rhs, result))
      return (lhs < 0) == (rhs < 0) ? std::numeric_limits<int64_t>::max()
                                    : std::numeric_limits<int64_t>::min();
    return result;
  }

private:
  MLIRContext *context;
  SmallVector<std::pair<ArrayAttr, int64_t>> terms;
};
} // namespace

static ArrayAttr multiplyMonomials(ArrayAttr lhs, ArrayAttr rhs) {
  if (lhs.empty() || rhs.empty())
    return lhs.empty() ? rhs : lhs;
  SmallVector<std::pair<std::string, Attribute>> factors;
  for (ArrayAttr side : {lhs, rhs})
    for (Attribute atom : side)
      factors.emplace_back(getKey(spell(atom), atom), atom);
  llvm::sort(factors, [](const auto &left, const auto &right) {
    return left.first < right.first;
  });
  SmallVector<Attribute> atoms;
  for (auto &factor : factors)
    atoms.push_back(factor.second);
  return ArrayAttr::get(lhs.getContext(), atoms);
}

//===----------------------------------------------------------------------===//
// Construction and arithmetic
//===----------------------------------------------------------------------===//

DimExpr::DimExpr(DimExprAttr attr) : attr(attr) {}

DimExprAttr DimExpr::getAttr() const { return cast<DimExprAttr>(attr); }

DimExpr DimExpr::constant(MLIRContext *context, int64_t value) {
  if (value == 0)
    return DimExprAttr::get(context, {}, {});
  return DimExprAttr::get(context, value, ArrayAttr::get(context, {}));
}

DimExpr DimExpr::symbol(DimSymbol symbol) {
  MLIRContext *context = symbol.getContext();
  return DimExprAttr::get(context, 1,
                          ArrayAttr::get(context, {Attribute(symbol)}));
}

DimExpr DimExpr::symbol(MLIRContext *context, StringRef name, SymbolKind kind) {
  return symbol(DimSymbol::get(context, name, kind));
}

static DimExpr makeAtom(StringRef function, DimExpr lhs, DimExpr rhs) {
  MLIRContext *context = lhs.getContext();
  auto atom = DimAtomAttr::get(context, StringAttr::get(context, function),
                               lhs.getAttr(), rhs.getAttr());
  TermList terms(context);
  terms.add(ArrayAttr::get(context, {Attribute(atom)}), 1);
  return terms.build();
}

// Most extents are numbers, and many of those one or none: what is there
// already need not be looked up among all expressions again.

DimExpr DimExpr::operator+(DimExpr other) const {
  if (isConstant(0) || other.isConstant(0))
    return isConstant(0) ? other : *this;
  if (auto lhs = getConstant(), rhs = other.getConstant(); lhs && rhs)
    if (int64_t value; !llvm::AddOverflow(*lhs, *rhs, value))
      return constant(getContext(), value);
  TermList terms(getContext());
  terms.add(getAttr());
  terms.add(other.getAttr());
  return terms.build();
}

DimExpr DimExpr::operator-(DimExpr other) const {
  if (other.isConstant(0))
    return *this;
  if (auto lhs = getConstant(), rhs = other.getConstant(); lhs && rhs)
    if (int64_t value; !llvm::SubOverflow(*lhs, *rhs, value))
      return constant(getContext(), value);
  TermList terms(getContext());
  terms.add(getAttr());
  terms.add(other.getAttr(), -1);
  return terms.build();
}

DimExpr DimExpr::operator*(DimExpr other) const {
  if (isConstant(1) || other.isConstant(1))
    return isConstant(1) ? other : *this;
  if (auto lhs = getConstant(), rhs = other.getConstant(); lhs && rhs)
    if (int64_t value; !llvm::MulOverflow(*lhs, *rhs, value))
      return constant(getContext(), value);
  TermList terms(getContext());
  for (auto [leftCoefficient, left] :
       llvm::zip_equal(getAttr().getCoefficients(), getAttr().getMonomials()))
    for (auto [rightCoefficient, right] : llvm::zip_equal(
             other.getAttr().getCoefficients(), other.getAttr().getMonomials()))
      terms.add(multiplyMonomials(left, right),
                TermList::saturatingMul(leftCoefficient, rightCoefficient));
  return terms.build();
}

DimExpr DimExpr::operator+(int64_t value) const {
  return *this + constant(getContext(), value);
}
DimExpr DimExpr::operator-(int64_t value) const {
  return *this - constant(getContext(), value);
}
DimExpr DimExpr::operator*(int64_t value) const {
  return *this * constant(getContext(), value);
}

DimExpr DimExpr::floorDiv(int64_t value) const {
  return floorDiv(constant(getContext(), value));
}

/// The quotient if `monomial` contains every factor of `divisor`.
static std::optional<ArrayAttr> divideMonomials(ArrayAttr monomial,
                                                ArrayAttr divisor) {
  SmallVector<Attribute> rest(monomial.begin(), monomial.end());
  for (Attribute atom : divisor) {
    auto *found = llvm::find(rest, atom);
    if (found == rest.end())
      return std::nullopt;
    rest.erase(found);
  }
  return ArrayAttr::get(monomial.getContext(), rest);
}

DimExpr DimExpr::floorDiv(DimExpr other) const {
  auto lhsConstant = getConstant(), rhsConstant = other.getConstant();
  if (rhsConstant && *rhsConstant == -1)
    return *this * -1; // The smallest integer has no quotient by it.
  if (lhsConstant && rhsConstant && *rhsConstant != 0)
    return constant(getContext(),
                    llvm::divideFloorSigned(*lhsConstant, *rhsConstant));
  if (rhsConstant && *rhsConstant == 1)
    return *this;
  // (4*B*S) floordiv (2*S) is 2*B: exact for every value, S != 0 granted,
  // which an extent that is divided by must satisfy anyway. A sum splits into
  // its divisible terms plus the rest.
  if (other.getAttr().getCoefficients().size() == 1) {
    int64_t divisor = other.getAttr().getCoefficients().front();
    ArrayAttr factors = other.getAttr().getMonomials().front();
    TermList exact(getContext()), rest(getContext());
    bool any = false, allExact = true;
    for (auto [coefficient, monomial] : llvm::zip_equal(
             getAttr().getCoefficients(), getAttr().getMonomials())) {
      auto quotient = divideMonomials(monomial, factors);
      if (quotient && divisor != -1 && coefficient % divisor == 0) {
        exact.add(*quotient, coefficient / divisor);
        any = true;
      } else {
        rest.add(monomial, coefficient);
        allExact = false;
      }
    }
    if (allExact)
      return exact.build();
    if (any)
      return DimExpr(exact.build()) + DimExpr(rest.build()).floorDiv(other);
  }
  return makeAtom("floordiv", *this, other);
}

DimExpr DimExpr::mod(DimExpr other) const {
  return *this - floorDiv(other) * other;
}

DimExpr DimExpr::min(DimExpr other) const {
  if (auto difference = (*this - other).getConstant())
    return *difference <= 0 ? *this : other;
  bool ordered = isBefore(*this, other);
  return makeAtom("min", ordered ? *this : other, ordered ? other : *this);
}

DimExpr DimExpr::max(DimExpr other) const {
  if (auto difference = (*this - other).getConstant())
    return *difference >= 0 ? *this : other;
  bool ordered = isBefore(*this, other);
  return makeAtom("max", ordered ? *this : other, ordered ? other : *this);
}

DimExpr DimExpr::broadcast(DimExpr other) const {
  if (*this == other || other.isConstant(1))
    return *this;
  if (isConstant(1))
    return other;
  // A known extent other than one decides: the other is equal or one.
  if (getConstant())
    return *this;
  if (other.getConstant())
    return other;
  bool ordered = isBefore(*this, other);
  return makeAtom("broadcast", ordered ? *this : other,
                  ordered ? other : *this);
}

//===----------------------------------------------------------------------===//
// Questions
//===----------------------------------------------------------------------===//

std::optional<int64_t> DimExpr::getConstant() const {
  ArrayRef<ArrayAttr> monomials = getAttr().getMonomials();
  if (monomials.empty())
    return 0;
  if (monomials.size() == 1 && monomials.front().empty())
    return getAttr().getCoefficients().front();
  return std::nullopt;
}

static std::optional<int64_t> evaluateAtom(Attribute atom,
                                           SymbolValues values) {
  if (auto symbol = dyn_cast<DimSymbol>(atom))
    return values(symbol);
  auto call = cast<DimAtomAttr>(atom);
  auto lhs = DimExpr(call.getLhs()).evaluate(values);
  auto rhs = DimExpr(call.getRhs()).evaluate(values);
  if (!lhs || !rhs)
    return std::nullopt;
  StringRef function = call.getFunction().getValue();
  if (function == "min")
    return std::min(*lhs, *rhs);
  if (function == "max")
    return std::max(*lhs, *rhs);
  if (function == "broadcast") {
    if (*lhs == *rhs || *rhs == 1)
      return lhs;
    return *lhs == 1 ? rhs : std::nullopt;
  }
  if (*rhs == 0 || (*rhs == -1 && *lhs == std::numeric_limits<int64_t>::min()))
    return std::nullopt;
  return llvm::divideFloorSigned(*lhs, *rhs);
}

std::optional<int64_t> DimExpr::evaluate(SymbolValues values) const {
  int64_t sum = 0;
  for (auto [coefficient, monomial] :
       llvm::zip_equal(getAttr().getCoefficients(), getAttr().getMonomials())) {
    int64_t term = coefficient;
    for (Attribute atom : monomial) {
      auto value = evaluateAtom(atom, values);
      if (!value || llvm::MulOverflow(term, *value, term))
        return std::nullopt;
    }
    if (llvm::AddOverflow(sum, term, sum))
      return std::nullopt;
  }
  return sum;
}

DimExpr
DimExpr::substitute(llvm::function_ref<DimExpr(DimSymbol)> replacement) const {
  DimExpr sum = constant(getContext(), 0);
  for (auto [coefficient, monomial] :
       llvm::zip_equal(getAttr().getCoefficients(), getAttr().getMonomials())) {
    DimExpr term = constant(getContext(), coefficient);
    for (Attribute atom : monomial) {
      if (auto known = dyn_cast<DimSymbol>(atom)) {
        DimExpr replaced = replacement(known);
        term = term * (replaced ? replaced : symbol(known));
        continue;
      }
      auto call = cast<DimAtomAttr>(atom);
      DimExpr lhs = DimExpr(call.getLhs()).substitute(replacement);
      DimExpr rhs = DimExpr(call.getRhs()).substitute(replacement);
      StringRef function = call.getFunction().getValue();
      term = term * (function == "min"         ? lhs.min(rhs)
                     : function == "max"       ? lhs.max(rhs)
                     : function == "broadcast" ? lhs.broadcast(rhs)
                                               : lhs.floorDiv(rhs));
    }
    sum = sum + term;
  }
  return sum;
}

void DimExpr::forEachSymbol(
    llvm::function_ref<void(DimSymbol)> callback) const {
  for (ArrayAttr monomial : getAttr().getMonomials())
    for (Attribute atom : monomial) {
      if (auto symbol = dyn_cast<DimSymbol>(atom)) {
        callback(symbol);
        continue;
      }
      DimExpr(cast<DimAtomAttr>(atom).getLhs()).forEachSymbol(callback);
      DimExpr(cast<DimAtomAttr>(atom).getRhs()).forEachSymbol(callback);
    }
}

bool DimExpr::dependsOn(DimSymbol symbol) const {
  bool found = false;
  forEachSymbol([&](DimSymbol other) { found |= other == symbol; });
  return found;
}

bool DimExpr::dependsOn(StringRef name) const {
  bool found = false;
  forEachSymbol([&](DimSymbol symbol) { found |= symbol.isNamed(name); });
  return found;
}

bool DimExpr::hasLocalSymbol() const {
  bool found = false;
  forEachSymbol([&](DimSymbol symbol) { found |= symbol.isLocal(); });
  return found;
}

/// The only symbol with what it is multiplied by, if that is all there is.
static std::pair<DimSymbol, int64_t> getOnlyTerm(DimExprAttr expr) {
  ArrayRef<ArrayAttr> monomials = expr.getMonomials();
  if (monomials.size() != 1 || monomials.front().size() != 1)
    return {};
  return {dyn_cast<DimSymbol>(monomials.front()[0]),
          expr.getCoefficients().front()};
}

DimSymbol DimExpr::getSymbol() const {
  auto [symbol, factor] = getOnlyTerm(getAttr());
  return factor == 1 ? symbol : DimSymbol();
}

std::optional<int64_t> DimExpr::getMultipleOf(DimSymbol symbol) const {
  auto [only, factor] = getOnlyTerm(getAttr());
  if (!only || only != symbol || factor <= 0)
    return std::nullopt;
  return factor;
}

std::optional<int64_t> DimExpr::getMultipleOf(StringRef name) const {
  auto [only, factor] = getOnlyTerm(getAttr());
  if (!only || !only.isNamed(name) || factor <= 0)
    return std::nullopt;
  return factor;
}

void DimExpr::print(llvm::raw_ostream &os) const {
  ArrayRef<ArrayAttr> monomials = getAttr().getMonomials();
  if (monomials.empty()) {
    os << '0';
    return;
  }
  bool first = true;
  for (auto [coefficient, monomial] :
       llvm::zip_equal(getAttr().getCoefficients(), monomials)) {
    if (!first)
      os << (coefficient < 0 ? " - " : " + ");
    else if (coefficient < 0)
      os << '-';
    first = false;
    uint64_t magnitude = coefficient < 0 ? -static_cast<uint64_t>(coefficient)
                                         : static_cast<uint64_t>(coefficient);
    if (monomial.empty()) {
      os << magnitude;
      continue;
    }
    if (magnitude != 1)
      os << magnitude << '*';
    os << spell(monomial);
  }
}

std::string DimExpr::str() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  print(os);
  return text;
}

TriBool koila::proveEqual(DimExpr lhs, DimExpr rhs) {
  if (lhs == rhs)
    return TriBool::Yes;
  if (lhs.getConstant() && rhs.getConstant())
    return TriBool::No;
  // `4*B + 1` is zero for no B: a sum of multiples of 4 is one, too.
  DimExprAttr difference = (lhs - rhs).getAttr();
  uint64_t divisor = 0, constant = 0;
  for (auto [coefficient, monomial] : llvm::zip_equal(
           difference.getCoefficients(), difference.getMonomials())) {
    uint64_t magnitude = coefficient < 0 ? -static_cast<uint64_t>(coefficient)
                                         : static_cast<uint64_t>(coefficient);
    if (monomial.empty())
      constant = magnitude;
    else
      divisor = std::gcd(divisor, magnitude);
  }
  bool mayBeZero = divisor == 0 ? constant == 0 : constant % divisor == 0;
  return mayBeZero ? TriBool::Unknown : TriBool::No;
}

DimExpr koila::product(MLIRContext *context, ArrayRef<DimExpr> factors) {
  DimExpr result = DimExpr::constant(context, 1);
  for (DimExpr factor : factors)
    result = result * factor;
  return result;
}

//===----------------------------------------------------------------------===//
// Assembly format of the attributes
//===----------------------------------------------------------------------===//

/// What people write is nested a few times; each level takes some of the stack.
static constexpr unsigned kMostNested = 100;

static FailureOr<DimExpr> parseSum(AsmParser &parser, unsigned depth = 0);

/// factor ::= integer | `(` sum `)` | symbol | function `(` sum `,` sum `)`
static FailureOr<DimExpr> parseFactor(AsmParser &parser, unsigned depth) {
  MLIRContext *context = parser.getContext();
  int64_t value = 0;
  OptionalParseResult integer = parser.parseOptionalInteger(value);
  if (integer.has_value()) {
    if (failed(*integer))
      return failure();
    return DimExpr::constant(context, value);
  }
  if (succeeded(parser.parseOptionalLParen())) {
    FailureOr<DimExpr> inner = parseSum(parser, depth + 1);
    if (failed(inner) || parser.parseRParen())
      return failure();
    return inner;
  }
  StringRef name;
  if (parser.parseKeyword(&name))
    return failure();
  if (failed(parser.parseOptionalLParen()))
    return DimExpr::symbol(context, name);
  auto location = parser.getCurrentLocation();
  FailureOr<DimExpr> lhs = parseSum(parser, depth + 1);
  if (failed(lhs) || parser.parseComma())
    return failure();
  FailureOr<DimExpr> rhs = parseSum(parser, depth + 1);
  if (failed(rhs) || parser.parseRParen())
    return failure();
  if (name == "floordiv")
    return lhs->floorDiv(*rhs);
  if (name == "mod")
    return lhs->mod(*rhs);
  if (name == "min")
    return lhs->min(*rhs);
  if (name == "max")
    return lhs->max(*rhs);
  if (name == "broadcast")
    return lhs->broadcast(*rhs);
  return parser.emitError(location, "unknown function '")
         << name << "', expected floordiv, mod, min, max or broadcast";
}

static FailureOr<DimExpr> parseProduct(AsmParser &parser, unsigned depth) {
  FailureOr<DimExpr> result = parseFactor(parser, depth);
  while (succeeded(result) && succeeded(parser.parseOptionalStar())) {
    FailureOr<DimExpr> factor = parseFactor(parser, depth);
    if (failed(factor))
      return failure();
    result = *result * *factor;
  }
  return result;
}

static FailureOr<DimExpr> parseSum(AsmParser &parser, unsigned depth) {
  if (depth > kMostNested)
    return parser.emitError(parser.getCurrentLocation())
           << "an expression is nested more than " << kMostNested << " times";
  bool negative = succeeded(parser.parseOptionalMinus());
  FailureOr<DimExpr> result = parseProduct(parser, depth);
  if (succeeded(result) && negative)
    result = *result * -1;
  while (succeeded(result)) {
    bool plus = succeeded(parser.parseOptionalPlus());
    if (!plus && failed(parser.parseOptionalMinus()))
      return result;
    FailureOr<DimExpr> term = parseProduct(parser, depth);
    if (failed(term))
      return failure();
    result = plus ? *result + *term : *result - *term;
  }
  return result;
}

Attribute DimExprAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<DimExpr> expr = parseSum(parser);
  if (failed(expr) || parser.parseGreater())
    return {};
  return expr->getAttr();
}

void DimExprAttr::print(AsmPrinter &printer) const {
  printer << '<' << DimExpr(*this).str() << '>';
}

Attribute DimsAttr::parse(AsmParser &parser, Type) {
  SmallVector<DimExprAttr> exprs;
  auto parseElement = [&]() -> ParseResult {
    FailureOr<DimExpr> expr = parseSum(parser);
    if (failed(expr))
      return failure();
    exprs.push_back(expr->getAttr());
    return success();
  };
  if (parser.parseLess() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                     parseElement) ||
      parser.parseGreater())
    return {};
  return DimsAttr::get(parser.getContext(), exprs);
}

void DimsAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getExprs(), printer, [&](DimExprAttr expr) {
    printer << DimExpr(expr).str();
  });
  printer << "]>";
}

Attribute RangeAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<DimExpr> from = parseSum(parser);
  if (failed(from) || parser.parseColon())
    return {};
  FailureOr<DimExpr> to = parseSum(parser);
  if (failed(to) || parser.parseGreater())
    return {};
  return RangeAttr::get(parser.getContext(), from->getAttr(), to->getAttr());
}

void RangeAttr::print(AsmPrinter &printer) const {
  printer << '<' << DimExpr(getFrom()).str() << ':' << DimExpr(getTo()).str()
          << '>';
}
