//===- TestPasses.h - Passes for tests --------------------------*- C++ -*-===//

#ifndef KOILA_TEST_LIB_TESTPASSES_H
#define KOILA_TEST_LIB_TESTPASSES_H

namespace koila {

void registerPrintRulesPass();

inline void registerTestPasses() { registerPrintRulesPass(); }

} // namespace koila

#endif // KOILA_TEST_LIB_TESTPASSES_H
