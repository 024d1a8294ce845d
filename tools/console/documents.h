// The manual page of a program and its completions for shells, made from the options that it declares: they
// cannot tell anything else than its --help.
//
// What they read besides names and descriptions:
//   - an option's type: {A,B} are its values, FILE and DIR complete names of files and folders;
//   - in descriptions and the footer: a line "Title:" opens a list, whose items stand on lines of their own,
//     indented: the term, spaces, what it means.
#ifndef INTACT_TOOLS_CONSOLE_DOCUMENTS_H_
#define INTACT_TOOLS_CONSOLE_DOCUMENTS_H_

#include <CLI/CLI.hpp>

namespace intact::tools {

/// Adds what the build asks for: --document man, bash, zsh or fish prints that document of `app`, whose
/// subcommands and options may also be added later. It stands in none of them, nor in --help.
void AddDocumentOption(CLI::App* app);

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_DOCUMENTS_H_
