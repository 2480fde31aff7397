//===- TestPasses.h - Passes for tests --------------------------*- C++ -*-===//

#ifndef KOILA_TEST_LIB_TESTPASSES_H
#define KOILA_TEST_LIB_TESTPASSES_H

namespace koila {

void registerPrintFactsPass();
void registerPrintRulesPass();

inline void registerTestPasses() {
  registerPrintFactsPass();
  registerPrintRulesPass();
}

} // namespace koila

#endif // KOILA_TEST_LIB_TESTPASSES_H
