// Package examples holds whole programs that use drumline; see dots.
package examples
