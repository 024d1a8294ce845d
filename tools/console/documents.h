// The manual page of a program and its completions for shells. They are made from the options that the
// program declares, so they always agree with --help.
//
// Besides names and descriptions they use:
//   - an option's type: {A,B} are its values, FILE and DIR complete names of files and folders;
//   - in descriptions and the footer: a line "Title:" opens a list. Each item is an indented line: the term,
//     spaces, its meaning.
#ifndef INTACT_TOOLS_CONSOLE_DOCUMENTS_H_
#define INTACT_TOOLS_CONSOLE_DOCUMENTS_H_

#include <CLI/CLI.hpp>

namespace intact::tools {

/// Adds an option for the build: --document man, bash, zsh or fish prints that document of `app`. Subcommands
/// and options may be added later. The option itself appears neither in documents nor in --help.
void AddDocumentOption(CLI::App* app);

}  // namespace intact::tools
#endif  // INTACT_TOOLS_CONSOLE_DOCUMENTS_H_
