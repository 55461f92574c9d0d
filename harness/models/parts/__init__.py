"""How trees and lattices become graphs; cells."""
