// Package images builds container images without Docker and without a
// registry: a docker-format archive with one layer of static binaries, which a
// cluster imports as it is (clusters.ImageLoader). It is the one place that
// knows go-containerregistry.
//
// Images are named by what is in them (see Ref), so that a node that has the
// name also has the content, and pods can use imagePullPolicy Never.
package images
